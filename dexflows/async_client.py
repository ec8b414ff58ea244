"""The asynchronous client, made from the synchronous one."""

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async

from dexflows import long_polls
from dexflows.client import Client

__all__ = ["AsyncClient"]


def _awaitable_looks(looking: Callable[..., "long_polls.Looks[Any]"]) -> Any:
    async def wait(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        return await long_polls.awaiting(looking(self._client, *args, **kwargs))

    wait.__name__, wait.__doc__ = looking.__name__, looking.__doc__
    return wait


def _awaitable(method: Callable[..., Any]) -> Any:
    async def call(self: "AsyncClient", *args: Any, **kwargs: Any) -> Any:
        return await sync_to_async(method)(self._client, *args, **kwargs)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class AsyncClient:
    """The client with awaitable methods of the same names, arguments and errors; made from `Client`."""

    def __init__(self) -> None:
        self._client = Client()


for _name, _method in list(vars(Client).items()):
    if inspect.isgeneratorfunction(inspect.unwrap(_method)):
        setattr(AsyncClient, _name, _awaitable_looks(inspect.unwrap(_method)))
    elif not _name.startswith("_"):
        setattr(AsyncClient, _name, _awaitable(_method))
