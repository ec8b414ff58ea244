"""The directory application: imports its Flow and registers its start-up checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register


class DirectoryConfig(AppConfig):
    name = "directory"
    verbose_name = "Customer directory"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from celery.signals import worker_init

        from directory import flows, schema  # noqa: F401 - importing flows registers the Flow

        register(schema.check_partition_schema, Tags.database)
        worker_init.connect(schema.verify_at_worker_start, dispatch_uid="directory.schema")
