"""Django system checks of the engine."""

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured
from redis import RedisError

from dexflows.conf import conf
from dexflows.engine import stream_server
from dexflows.registry import registry

definition_errors: list[str] = []
"""What was wrong with the Flows that the apps' `flows.py` register, when a management command was starting."""


@register
def check_flows(**_: object) -> list[CheckMessage]:
    """Every Flow was registered."""
    return [Error(error, id="dexflows.E010") for error in definition_errors]


@register
def check_settings(**_: object) -> list[CheckMessage]:
    """`DEXFLOWS` holds known keys with usable values, and its database is PostgreSQL at READ COMMITTED."""
    try:
        alias = conf().database
    except ImproperlyConfigured as error:
        return [Error(str(error), id="dexflows.E001")]
    if alias not in settings.DATABASES:
        return [Error(f"DEXFLOWS['DATABASE'] names {alias!r}, which is not in DATABASES", id="dexflows.E002")]
    options = settings.DATABASES[alias].get("OPTIONS", {})
    if options.get("server_side_binding"):
        hint = "remove server_side_binding from its OPTIONS"
        return [Error(f"database {alias!r} must bind parameters on the client", hint=hint, id="dexflows.E004")]
    isolation = options.get("isolation_level")
    if isolation is not None and getattr(isolation, "name", isolation) != "READ_COMMITTED":
        return [
            Error(
                f"database {alias!r} must run at READ COMMITTED: locks are checked with a snapshot of their own",
                id="dexflows.E003",
            )
        ]
    return []


@register
def check_streams(**_: object) -> list[CheckMessage]:
    """Where a Flow declares Streams, there is a Redis that keeps them."""
    try:
        url, _prefix = stream_server.address()
    except ImproperlyConfigured:
        return []  # reported by `check_settings`
    flows = [each.flow_type for each in registry.definitions() if each.streams]
    if not flows:
        return []
    if url is None:
        hint = "set DEXFLOWS['STREAMS_URL']; until then their messages are lost"
        return [checks.Warning(f"Streams of {', '.join(flows)} have no Redis", hint=hint, id="dexflows.W001")]
    try:
        stream_server.client_of(url)
    except (ValueError, TypeError, RedisError) as error:
        return [Error(f"the URL of the Redis that keeps Streams cannot be used: {error}", id="dexflows.E005")]
    return []
