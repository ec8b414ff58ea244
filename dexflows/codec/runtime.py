"""Values without a declared type, stored by the type they have: outputs, events and locals."""

from __future__ import annotations

from typing import Any

from dexflows.codec.compile import Compiler
from dexflows.codec.containers import walk_items, walk_pairs
from dexflows.codec.plan import Misfit, Plan, Wire
from dexflows.errors import FlowDefinitionError

_plans: dict[type, Plan] = {}


def plan_of_class(python_type: type) -> Plan:
    """The plan of a value's own class; Misfit if such values cannot be stored."""
    plan = _plans.get(python_type)
    if plan is None:
        try:
            plan = Compiler().plan(python_type)
        except FlowDefinitionError as error:
            raise Misfit(str(error)) from None
        _plans[python_type] = plan
    return plan


def dump_by_class(value: Any) -> Wire:
    """The wire value of any supported value; items of containers by their own classes too."""
    python_type = type(value)
    if python_type is list or python_type is tuple:
        return walk_items(dump_by_class, value)
    if python_type is set or python_type is frozenset:
        return walk_items(dump_by_class, sorted(value, key=repr))
    if python_type is dict:
        return walk_pairs(dump_by_class, value)
    return plan_of_class(python_type).dump(value)


RUNTIME_PLAN = Plan(
    name="value",
    dump=dump_by_class,
    load=lambda wire: wire,
    python_types=(object,),
    shapes=frozenset(),
    recursive=True,
)
"""Stores what it is given, and reads plain JSON."""
