"""Starts the embedded PostgreSQL before the first connection, so that commands without a database start nothing."""

from typing import Any

from django.conf import settings
from django.db.backends.postgresql import base

from config.embedded import POSTGRES, ensure


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL on the Unix socket of this checkout's server."""

    def get_connection_params(self) -> dict[str, Any]:
        """Give the parameters of a connection to the server, which is running from then on."""
        self.settings_dict["HOST"] = ensure(POSTGRES, settings.STATE_DIR).socket_dir
        return super().get_connection_params()
