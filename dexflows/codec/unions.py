"""Plans of unions.

A member is stored plainly where its JSON can only be read as that member. Where members share a JSON shape, the
plain reading of the shape (str of a string, list of an array, dict of an object, int of a whole number) stays plain,
and the others are wrapped: `{"$type": "datetime", "$value": "2026-01-01T00:00:00+00:00"}`. The order of the members
does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any

from dexflows.codec.plan import Misfit, Plan, Wire, any_recursive, any_verify, mismatch, shape_of
from dexflows.errors import FlowDefinitionError

_TYPE, _VALUE = "$type", "$value"
_WRAPPED = {_TYPE, _VALUE}


def plan_union(listed: list[Plan]) -> Plan:
    """One of several types."""
    members = _flat(listed)
    by_type = _by_type(members)
    name = " | ".join(each.name for each in members)
    others = [each for each in members if each.python_types != (NoneType,)]
    if len(others) == 1:
        return _plan_optional(others[0], members, name)
    owners = _owners(members)
    return Plan(
        name=name,
        dump=_dumper(by_type, owners, name),
        load=_loader(members, owners, name),
        python_types=tuple(by_type),
        shapes=frozenset(shape for each in members for shape in each.shapes),
        members=members,
        recursive=any_recursive(members),
        verify=any_verify(members),
    )


def _plan_optional(other: Plan, members: tuple[Plan, ...], name: str) -> Plan:
    """`T | None`, which is never wrapped and may go straight to msgspec."""
    dump, load, check = other.dump, other.load, other.check
    return Plan(
        name=name,
        dump=lambda value: None if value is None else dump(value),
        load=lambda wire: None if wire is None else load(wire),
        python_types=(*other.python_types, NoneType),
        shapes=other.shapes | {NoneType},
        check=check and (lambda value: value is None or check(value)),
        members=members,
        recursive=other.recursive,
        verify=other.verify,
    )


def _flat(listed: list[Plan]) -> tuple[Plan, ...]:
    flat = [member for each in listed for member in (each.members or (each,))]
    return tuple(dict.fromkeys(flat))


def _by_type(members: tuple[Plan, ...]) -> dict[type, Plan]:
    by_type: dict[type, Plan] = {}
    names: set[str] = set()
    for member in members:
        if not member.python_types:
            raise FlowDefinitionError(f"{member.name} is a union that contains itself directly")
        for python_type in member.python_types:
            if python_type in by_type:
                raise FlowDefinitionError(
                    f"{by_type[python_type].name} | {member.name} is ambiguous: both are {python_type.__name__} values"
                )
            by_type[python_type] = member
        if member.name in names:
            raise FlowDefinitionError(f"a union has two members named {member.name}")
        names.add(member.name)
    return by_type


def _owners(members: tuple[Plan, ...]) -> dict[type, Plan]:
    """The member that each JSON shape means when it is not wrapped."""
    owners: dict[type, Plan] = {}
    for shape in {shape for each in members for shape in each.shapes}:
        claimants = [each for each in members if shape in each.shapes]
        natural = [each for each in claimants if each.natural is shape]
        if len(claimants) == 1 or natural:
            owners[shape] = (natural or claimants)[0]
    return owners


def _dumper(by_type: dict[type, Plan], owners: dict[type, Plan], name: str) -> Callable[[Any], Wire]:
    def dump(value: Any) -> Wire:
        member = by_type.get(type(value))
        if member is None:
            raise mismatch(name, value)
        wire = member.dump(value)
        looks_wrapped = type(wire) is dict and wire.keys() == _WRAPPED
        if looks_wrapped or owners.get(shape_of(wire)) is not member:
            return {_TYPE: member.name, _VALUE: wire}
        return wire

    return dump


def _loader(members: tuple[Plan, ...], owners: dict[type, Plan], name: str) -> Callable[[Wire], Any]:
    by_name = {each.name: each for each in members}

    def load(wire: Wire) -> Any:
        if type(wire) is dict and wire.keys() == _WRAPPED:
            return _load_wrapped(by_name, wire, name)
        owner = owners.get(type(wire))
        if owner is not None:
            return owner.load(wire)
        return _load_only_fit([each for each in members if type(wire) in each.shapes], wire, name)

    return load


def _load_wrapped(by_name: dict[str, Plan], wire: dict[str, Any], name: str) -> Any:
    named = wire[_TYPE]
    member = by_name.get(named) if type(named) is str else None
    if member is None:
        raise Misfit(f"expected {name}, got another type name").at(_TYPE)
    try:
        return member.load(wire[_VALUE])
    except Misfit as fault:
        raise fault.at(_VALUE) from None


def _load_only_fit(claimants: list[Plan], wire: Wire, name: str) -> Any:
    """JSON from outside need not be wrapped where only one member can read it."""
    values = []
    for each in claimants:
        try:
            values.append(each.load(wire))
        except Misfit:
            continue
    if len(values) == 1:
        return values[0]
    if values:
        raise Misfit(f"several of {name} can read this; wrap it with {_TYPE} and {_VALUE}")
    raise mismatch(name, wire)
