"""Django settings, read from the environment.

With `DATABASE_URL` and `BROKER_URL` set, those servers are used and nothing embedded is imported. Without them,
PostgreSQL and Valkey run from this checkout: importing the settings starts nothing, the first connection does
(`config/embedded`).
"""

from pathlib import Path
from typing import Any

import dj_database_url

from config import environ

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(environ.text("DEXFLOWS_STATE_DIR", str(BASE_DIR / ".dexflows")))

# `local` is what `make run` sets: bound to 127.0.0.1, and the API answers without authentication.
PROFILE = environ.text("DEXFLOWS_PROFILE", "production")
LOCAL = PROFILE == "local"
HTTPS = environ.flag("HTTPS", default=not LOCAL)

SECRET_KEY = environ.secret_key(STATE_DIR)
SECRET_KEY_FALLBACKS = environ.words("SECRET_KEY_FALLBACKS")
DEBUG = environ.flag("DEBUG")
ALLOWED_HOSTS = environ.words("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = environ.words("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "dexflows",
    "directory",
    "config.apps.ProjectConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "config.security.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database -------------------------------------------------------------------------------------
DATABASE_URL = environ.text("DATABASE_URL")
DATABASE: dict[str, Any] = (
    dict(dj_database_url.parse(DATABASE_URL))
    if DATABASE_URL
    else {"ENGINE": "config.embedded.postgresql", "NAME": "dexflows", "USER": "dexflows"}
)
DATABASE["NAME"] = environ.text("DATABASE_NAME", DATABASE["NAME"])
DATABASE |= {
    "ATOMIC_REQUESTS": False,
    "CONN_MAX_AGE": environ.number("DATABASE_CONN_MAX_AGE", 600),
    "CONN_HEALTH_CHECKS": True,
    # Nothing here may live on the server between transactions, so that a transaction pooler can stand in between.
    "DISABLE_SERVER_SIDE_CURSORS": True,
}
DATABASE["OPTIONS"] = {
    "application_name": environ.text("DATABASE_APPLICATION_NAME", "dexflows"),
    "connect_timeout": 5,
    # A line that is dead without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "server_side_binding": False,
} | DATABASE.get("OPTIONS", {})
DATABASES = {"default": DATABASE}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Broker and Celery ----------------------------------------------------------------------------
BROKER_URL = environ.text("BROKER_URL")
BROKER_IS_EMBEDDED = not BROKER_URL
if BROKER_IS_EMBEDDED:
    from config.embedded import broker_url

    BROKER_URL = broker_url(STATE_DIR)

CELERY_BROKER_URL = BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = 1.0
# A message is a doorbell: PostgreSQL knows what is due. So publishing gives up quickly, and results have no backend.
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {"max_retries": 0, "interval_start": 0, "interval_max": 0}
if BROKER_URL.startswith(("redis", "valkey", "unix", "sentinel")):
    CELERY_BROKER_TRANSPORT_OPTIONS |= {
        "socket_timeout": 1.0,
        "socket_connect_timeout": 1.0,
        "socket_keepalive": True,
        "retry_on_timeout": False,
        "visibility_timeout": 3600,
    }
    if prefix := environ.text("BROKER_KEY_PREFIX"):
        CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"] = prefix
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_ERRORS_EVEN_IF_IGNORED = False
CELERY_RESULT_BACKEND = None
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "dexflows"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A message that waits in one busy worker while another idles would delay its Step until the next sweep.
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_ETA_TASK_LIMIT = 1000
CELERY_WORKER_MAX_TASKS_PER_CHILD = environ.number("WORKER_MAX_TASKS_PER_CHILD", 10_000)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_TIMEZONE = "UTC"

# --- Engine ---------------------------------------------------------------------------------------
DEXFLOWS: dict[str, Any] = {}
if streams_url := environ.text("STREAMS_URL"):
    DEXFLOWS["STREAMS_URL"] = streams_url

# --- HTTP API -------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.SessionAuthentication",
        "rest_framework.authentication.TokenAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.AllowAny" if LOCAL else "rest_framework.permissions.IsAuthenticated"
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["dexflows.api.parsing.StrictJSONParser"],
    "EXCEPTION_HANDLER": "dexflows.api.problems.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "dexflows",
    "DESCRIPTION": "Durable Flows and the customer directory that is built on them.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": REST_FRAMEWORK["DEFAULT_PERMISSION_CLASSES"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000

# --- Users and sessions ---------------------------------------------------------------------------
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "admin:login"
SESSION_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_HTTPONLY = False

# --- Security -------------------------------------------------------------------------------------
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_HSTS_SECONDS = environ.number("HSTS_SECONDS", 31_536_000 if HTTPS else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
if environ.flag("BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# --- Static files, language, time -----------------------------------------------------------------
STATIC_URL = "static/"
# Served straight from the packages, so that neither `make run` nor a test needs `collectstatic` first.
WHITENOISE_USE_FINDERS = environ.flag("STATIC_FROM_PACKAGES", default=LOCAL or DEBUG)
STATIC_ROOT = Path(environ.text("STATIC_ROOT", str(STATE_DIR / "static" if LOCAL else BASE_DIR / "staticfiles")))
if WHITENOISE_USE_FINDERS:
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)
LANGUAGE_CODE = "en"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["console"], "level": environ.text("LOG_LEVEL", "INFO")},
    "loggers": {"django.security.DisallowedHost": {"handlers": ["console"], "level": "CRITICAL", "propagate": False}},
}
