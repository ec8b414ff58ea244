"""App configuration of the project itself."""

from django.apps import AppConfig


class ProjectConfig(AppConfig):
    """Loads the Celery application in every process, and holds the project's own commands."""

    name = "config"
    label = "project"

    def ready(self) -> None:
        """Make the Celery application the current one, so that shared tasks find their broker."""
        from config import celery  # noqa: F401 - importing it is the point
