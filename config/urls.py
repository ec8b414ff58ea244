"""Routes of the project."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path
from django.utils.functional import lazy
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from config import health, login

DOCS = SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="config/api_docs.html")

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("favicon.ico", RedirectView.as_view(url=lazy(static, str)("dexflows/icon.svg"))),
    path("admin/", admin.site.urls),
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", DOCS, name="docs"),
    path("patterns/hash-partitioned-attribute-map/", include("directory.api.urls")),
    path("local/login/<str:ticket>/", login.redeem, name="local-login"),
]
