"""The Celery application: `celery -A config worker`."""

import os
from typing import Any

from celery import Celery
from kombu import Connection

from dexflows.worker import install

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


class Application(Celery):
    """A Celery application that starts the embedded broker, where there is one, before it connects."""

    def connection_for_read(self, url: str | None = None, **kwargs: Any) -> Connection:
        """Connect as a consumer."""
        _start_embedded_broker()
        return super().connection_for_read(url, **kwargs)

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Connection:
        """Connect as a producer."""
        _start_embedded_broker()
        return super().connection_for_write(url, **kwargs)


def _start_embedded_broker() -> None:
    from django.conf import settings

    if settings.BROKER_IS_EMBEDDED:
        from config.embedded import VALKEY, ensure

        ensure(VALKEY, settings.STATE_DIR)


app = Application("dexflows")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["dexflows"])
install(app)
