"""App configuration of the local profile."""

from django.apps import AppConfig


class LocalConfig(AppConfig):
    """Holds the `devserver` command."""

    name = "config.local"
    label = "local"
