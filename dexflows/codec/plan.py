"""How one type is stored: a plan has the two walks, and what its neighbours must know about its JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

MAX_DEPTH = 100
"""Arrays and objects within each other, counted in the JSON."""

Wire = Any
"""Plain JSON: None, bool, int, float, str, list, dict, or msgspec.Raw for a number in chosen digits."""


class Misfit(Exception):  # noqa: N818 - a control signal of the codec; the boundary turns it into ValueMappingError
    """A value does not fit; the path grows while it passes the containers on its way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = []

    def at(self, step: str | int) -> Misfit:
        """The same fault seen from one container further out."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        """Where the fault is: `$.a[3].b`."""
        return "$" + "".join(map(_path_step, reversed(self.steps)))


def _path_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    shown = step if len(step) <= 100 else f"{step[:100]}…"
    return f".{shown}" if shown.isidentifier() else f"[{shown!a}]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The storing of one type.

    `dump` and `load` are complete and raise Misfit. `check` exists where msgspec alone stores the type exactly:
    it tells quickly that a value may go straight to the encoder; what it turns down goes through `dump`.
    """

    name: str
    dump: Callable[[Any], Wire]
    load: Callable[[Wire], Any]
    python_types: tuple[type, ...]
    shapes: frozenset[type]
    check: Callable[[Any], bool] | None = None
    exact: bool = False
    """Whether `check` is no more than `type(value) is python_types[0]`."""
    natural: type | None = None
    """The JSON shape of which this type is the plain reading, as str is of a JSON string."""
    members: tuple[Plan, ...] = field(default=())
    """The plans of a union."""
    recursive: bool = False
    """Whether values can nest without bound."""
    verify: bool = False
    """Whether user code runs in `load`, so that only trying shows that the value comes back equal."""


def mismatch(expected: str, value: object) -> Misfit:
    """The fault of a value that has another type than declared."""
    return Misfit(f"expected {expected}, got {type(value).__name__}")


def shape_of(wire: Wire) -> type:
    """The JSON shape of a wire value; a Raw is always a float in chosen digits."""
    return float if type(wire) is msgspec.Raw else type(wire)


def any_recursive(plans: Iterable[Plan]) -> bool:
    """Whether one of the plans is recursive."""
    return any(each.recursive for each in plans)


def any_verify(plans: Iterable[Plan]) -> bool:
    """Whether one of the plans runs user code in `load`."""
    return any(each.verify for each in plans)


def refuse_too_deep(wire: Wire) -> None:
    """Raise Misfit, with its path, where arrays and objects nest deeper than MAX_DEPTH."""
    open_: list[tuple[Any, int, tuple[Any, ...]]] = [(wire, 1, ())]
    while open_:
        node, depth, path = open_.pop()
        if type(node) is not list and type(node) is not dict:
            continue
        if depth > MAX_DEPTH:
            fault = Misfit(f"nested deeper than {MAX_DEPTH}")
            fault.steps = _unlink(path)
            raise fault
        items: Iterable[tuple[Any, Any]] = node.items() if type(node) is dict else enumerate(node)
        open_.extend((child, depth + 1, (path, step)) for step, child in items if type(child) in (list, dict))


def _unlink(path: tuple[Any, ...]) -> list[str | int]:
    steps: list[str | int] = []
    while path:
        path, step = path
        steps.append(step)
    return steps
