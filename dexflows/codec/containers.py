"""Plans of lists, tuples, sets and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from dexflows.codec.plan import Misfit, Plan, Wire, any_recursive, any_verify, mismatch
from dexflows.codec.scalars import check_text
from dexflows.errors import FlowDefinitionError


def walk_items(walk: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Each item walked; a fault names its index."""
    walked: list[Any] = []
    try:
        for item in items:
            walked.append(walk(item))
    except Misfit as fault:
        raise fault.at(len(walked)) from None
    return walked


def _load_items(item: Plan, name: str) -> Callable[[Wire], list[Any]]:
    load = item.load

    def load_items(wire: Wire) -> list[Any]:
        if type(wire) is not list:
            raise mismatch(name, wire)
        return walk_items(load, wire)

    return load_items


def _check_items(item: Plan) -> Callable[[Collection[Any]], bool] | None:
    """A quick check of all items at once."""
    if item.check is None:
        return None
    if item.exact:
        only = {item.python_types[0]}
        return lambda items: set(map(type, items)) <= only
    check = item.check
    return lambda items: all(map(check, items))


def plan_list(item: Plan) -> Plan:
    """A list whose items have one type."""
    name = f"list[{item.name}]"
    dump_item = item.dump
    check_items = _check_items(item)

    def dump(value: Any) -> Wire:
        if type(value) is not list:
            raise mismatch(name, value)
        return walk_items(dump_item, value)

    return Plan(
        name=name,
        dump=dump,
        load=_load_items(item, name),
        python_types=(list,),
        shapes=frozenset((list,)),
        check=check_items and (lambda value: type(value) is list and check_items(value)),
        natural=list,
        recursive=item.recursive,
        verify=item.verify,
    )


def plan_variadic_tuple(item: Plan) -> Plan:
    """A tuple of any length whose items have one type."""
    name = f"tuple[{item.name}, ...]"
    dump_item, load_items = item.dump, _load_items(item, name)

    def dump(value: Any) -> Wire:
        if type(value) is not tuple:
            raise mismatch(name, value)
        return walk_items(dump_item, value)

    return Plan(
        name=name,
        dump=dump,
        load=lambda wire: tuple(load_items(wire)),
        python_types=(tuple,),
        shapes=frozenset((list,)),
        recursive=item.recursive,
        verify=item.verify,
    )


def plan_fixed_tuple(items: tuple[Plan, ...]) -> Plan:
    """A tuple with a type for each place."""
    name = f"tuple[{', '.join(each.name for each in items) or '()'}]"

    def walk(values: Any, expected: type[Any], walks: tuple[Callable[[Any], Any], ...]) -> list[Any]:
        if type(values) is not expected:
            raise mismatch(name, values)
        given: tuple[Any, ...] | list[Any] = values
        if len(given) != len(walks):
            raise Misfit(f"expected {len(walks)} items, got {len(given)}")
        pairs = zip(walks, given, strict=True)
        return walk_items(lambda pair: pair[0](pair[1]), pairs)

    dumps = tuple(each.dump for each in items)
    loads = tuple(each.load for each in items)
    return Plan(
        name=name,
        dump=lambda value: walk(value, tuple, dumps),
        load=lambda wire: tuple(walk(wire, list, loads)),
        python_types=(tuple,),
        shapes=frozenset((list,)),
        recursive=any_recursive(items),
        verify=any_verify(items),
    )


def plan_set(declared: type[set[Any]] | type[frozenset[Any]], item: Plan) -> Plan:
    """A set or frozenset; stored in the order of its items' JSON, so that equal sets have equal JSON."""
    name = f"{declared.__name__}[{item.name}]"
    unhashable = [each.__name__ for each in item.python_types if each.__hash__ is None]
    if unhashable:
        raise FlowDefinitionError(f"{name}: {unhashable[0]} cannot be an item of a set")
    dump_item, load_items = item.dump, _load_items(item, name)

    def dump(value: Any) -> Wire:
        if type(value) is not declared:
            raise mismatch(name, value)
        return sorted(walk_items(dump_item, value), key=msgspec.json.encode)

    def load(wire: Wire) -> Any:
        try:
            return declared(load_items(wire))
        except TypeError:
            raise Misfit("an item cannot be in a set") from None

    return Plan(
        name=name,
        dump=dump,
        load=load,
        python_types=(declared,),
        shapes=frozenset((list,)),
        recursive=item.recursive,
        verify=item.verify,
    )


def plan_dict(value_plan: Plan) -> Plan:
    """A dictionary with str keys."""
    name = f"dict[str, {value_plan.name}]"
    dump_value, load_value = value_plan.dump, value_plan.load
    check_values = _check_items(value_plan)
    only_str = {str}

    def check(value: Any) -> bool:
        return (
            check_values is not None
            and type(value) is dict
            and set(map(type, value)) <= only_str
            and check_values(value.values())
        )

    def dump(value: Any) -> Wire:
        if type(value) is not dict:
            raise mismatch(name, value)
        return walk_pairs(dump_value, value)

    def load(wire: Wire) -> Any:
        if type(wire) is not dict:
            raise mismatch(name, wire)
        return walk_pairs(load_value, wire)

    return Plan(
        name=name,
        dump=dump,
        load=load,
        python_types=(dict,),
        shapes=frozenset((dict,)),
        check=None if check_values is None else check,
        natural=dict,
        recursive=value_plan.recursive,
        verify=value_plan.verify,
    )


def walk_pairs(walk: Callable[[Any], Any], pairs: dict[Any, Any]) -> dict[str, Any]:
    """Each value walked under its checked key; a fault names its key."""
    walked: dict[str, Any] = {}
    for key, value in pairs.items():
        try:
            walked[check_key(key)] = walk(value)
        except Misfit as fault:
            raise fault.at(str(key)) from None
    return walked


def check_key(key: object) -> str:
    """The key itself, if it is text that PostgreSQL can store."""
    if type(key) is not str:
        raise Misfit(f"a key must be a str, not {type(key).__name__}")
    return check_text(key)
