"""Django application configuration of the engine."""

import sys
from pathlib import Path

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from dexflows.errors import FlowDefinitionError


class DexflowsConfig(AppConfig):
    """Installs the SQL functions after `migrate`, imports each app's `flows.py`, and hangs up the doorbell."""

    name = "dexflows"
    verbose_name = "dexflows"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from dexflows import checks, tasks  # noqa: F401  (registering is what importing them does)

        post_migrate.connect(_install_functions, sender=self)
        try:
            autodiscover_modules("flows")
        except FlowDefinitionError as error:
            if not _runs_system_checks():
                raise
            checks.definition_errors.append(str(error))


def _runs_system_checks() -> bool:
    """Whether this is a management command, which reports a wrong Flow as a failed system check."""
    return Path(sys.argv[0]).name in ("manage.py", "django-admin", "django-admin.py")


def _install_functions(*, using: str, **_: object) -> None:
    from dexflows import sql
    from dexflows.conf import conf

    if using == conf().database:
        sql.install(using)
