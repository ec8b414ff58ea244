"""What one handler sees of its Attributes, and what it leaves to be written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dexflows import (
    Attribute,
    AttributeMap,
    AttributeMapNotLoadedError,
    Context,
    FlowDefinitionError,
    UndeclaredAttributeError,
    ValueMappingError,
    ValueTooLargeError,
)
from dexflows.buffer import AttributeBuffer
from dexflows.wait import Waited

status = Attribute("status", str)
tags = Attribute("tags", list[str], default=["new"])
stock = AttributeMap("stock", int, default=0)
SCHEMA = {each.name: each for each in (status, tags, stock)}


@dataclass
class Address:
    city: str


def context(buffer: AttributeBuffer | None = None, **loaded: Any) -> Context:
    """A handler's context over these loaded values."""
    buffer = buffer or AttributeBuffer(schema=SCHEMA, **loaded)
    return Context(flow_id="order-1", run_id="run", attributes=buffer)


def test_an_absent_value_reads_as_the_default_or_none() -> None:
    here = context(loaded_instances=frozenset({("stock", "a")}))
    assert status.get(here) is None
    assert tags.get(here) == ["new"]
    assert stock.get(here, "a") == 0


@pytest.mark.parametrize("raw", ['"old"', b'"old"', msgspec.Raw(b'"old"')])
def test_a_loaded_value_is_decoded_and_own_writes_are_seen(raw: Any) -> None:
    here = context(loaded={("status", ""): raw})
    assert status.get(here) == "old"
    status.set(here, "new")
    assert status.get(here) == "new"
    status.delete(here)
    assert status.get(here) is None
    assert here.attributes.writes == {("status", ""): None}


def test_changing_what_get_returned_changes_nothing() -> None:
    here = context(loaded={("tags", ""): '["a"]'})
    tags.get(here).append("b")  # type: ignore[union-attr]
    assert tags.get(here) == ["a"]
    value = ["c"]
    tags.set(here, value)
    value.append("d")
    assert tags.get(here) == ["c"]
    tags.delete(here)
    tags.get(here).append("e")  # type: ignore[union-attr]
    assert tags.get(here) == ["new"]


def test_writes_keep_the_order_of_their_first_write() -> None:
    here = context()
    stock.set(here, "b", 1)
    status.set(here, "x")
    stock.delete(here, "a")
    stock.set(here, "b", 2)
    tags.set(here, None)
    assert list(here.attributes.writes.items()) == [
        (("stock", "b"), "2"),
        (("status", ""), '"x"'),
        (("stock", "a"), None),
        (("tags", ""), None),
    ]


def test_an_instance_must_be_loaded_or_written_here_to_be_read() -> None:
    here = context(loaded={("stock", "a"): "5"}, loaded_instances=frozenset({("stock", "a")}))
    assert stock.get(here, "a") == 5
    for act in (
        lambda: stock.get(here, "b"),
        lambda: stock.get_map_size(here),
        lambda: stock.get_all_instance_keys(here),
    ):
        with pytest.raises(AttributeMapNotLoadedError, match="stock"):
            act()
    stock.set(here, "b", 7)
    assert stock.get(here, "b") == 7
    stock.delete(here, "c")
    assert stock.get(here, "c") == 0


def test_a_whole_map_counts_own_writes() -> None:
    here = context(
        loaded={("stock", "a"): "1", ("stock", "b"): "2", ("status", ""): '"x"'}, loaded_maps=frozenset({"stock"})
    )
    assert stock.get(here, "absent") == 0
    stock.delete(here, "a")
    stock.set(here, "c", 3)
    stock.set(here, "d", 4)
    stock.delete(here, "d")
    assert stock.get_all_instance_keys(here) == ["b", "c"]
    assert stock.get_map_size(here) == 2


def test_an_attribute_is_recognised_by_identity_and_not_by_name() -> None:
    here = context(loaded_maps=frozenset({"stock"}))
    impostor, strange_map = Attribute("status", str), AttributeMap("stock", int)
    for act in (
        lambda: impostor.get(here),
        lambda: impostor.set(here, "x"),
        lambda: impostor.delete(here),
        lambda: strange_map.get(here, "a"),
        lambda: strange_map.get_map_size(here),
    ):
        with pytest.raises(UndeclaredAttributeError):
            act()
    assert here.attributes.writes == {}


def test_a_wrong_or_too_large_value_is_refused_at_the_write_and_not_buffered() -> None:
    here = context(AttributeBuffer(schema=SCHEMA, max_value_bytes=10))
    with pytest.raises(ValueMappingError):
        status.set(here, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueTooLargeError, match="status"):
        status.set(here, "x" * 9)
    assert here.attributes.writes == {}


@pytest.mark.parametrize("instance", ["", "a/b", "a\0", "\ud800", "é" * 257, 5, None])
def test_a_bad_instance_key_is_refused_everywhere(instance: Any) -> None:
    here = context(loaded_maps=frozenset({"stock"}))
    for act in (
        lambda: stock.get(here, instance),
        lambda: stock.set(here, instance, 1),
        lambda: stock.delete(here, instance),
        lambda: stock.lock(instance),
        lambda: stock.load(instance),
    ):
        with pytest.raises(ValueMappingError, match="instance key of stock"):
            act()


@pytest.mark.parametrize("name", ["", "a/b", "a\n", "a\0", "x" * 256, 5])
def test_a_bad_name_is_refused(name: Any) -> None:
    for kind in (Attribute, AttributeMap):
        with pytest.raises(FlowDefinitionError):
            kind(name, str)


def test_locks_have_the_physical_names_that_holders_share() -> None:
    assert status.lock().key == "status"
    assert stock.lock("payment").key == "stock/payment"
    assert stock.lock("a b%*é").key == "stock/a%20b%25%2A%C3%A9"
    assert stock.lock_all().key == "stock/*"
    assert stock.lock("a") == stock.lock("a")
    assert stock.lock("a") != AttributeMap("stock", int).lock("a")
    assert len({stock.lock("a"), stock.lock("a"), stock.lock_all()}) == 2


def test_locals_are_read_back_by_their_type_and_buffered() -> None:
    here = Context(
        flow_id="f",
        run_id="r",
        attributes=AttributeBuffer(schema=SCHEMA),
        step_locals={"seen": '{"city":"Bonn"}'},
    )
    assert here.get_step_execution_local("seen", Address) == Address("Bonn")
    assert here.get_step_execution_local("absent", Address) is None
    here.set_step_execution_local("seen", Address("Kyiv"))
    here.set_step_execution_local("many", [1, 2])
    assert here.get_step_execution_local("seen", Address) == Address("Kyiv")
    assert here.get_step_execution_local("many", list[int]) == [1, 2]
    assert here.local_writes == {"seen": '{"city":"Kyiv"}', "many": "[1,2]"}


def test_events_are_buffered_in_order() -> None:
    here = context()
    here.record_event("charged", 5)
    here.record_event("noted")
    assert here.events == [("charged", "5"), ("noted", "null")]
    for name in ("", "a\0", "\ud800", 5):
        with pytest.raises(ValueMappingError):
            here.record_event(name)  # type: ignore[arg-type]
    with pytest.raises(ValueMappingError):
        here.record_event("odd", object())
    assert len(here.events) == 2


def test_a_context_asks_the_worker_about_cancellation() -> None:
    here = Context(
        flow_id="f",
        run_id="r",
        attributes=AttributeBuffer(schema=SCHEMA),
        is_cancellation_requested=lambda: True,
        waited=Waited(wait_for_failed=True),
    )
    assert here.is_cancellation_requested()
    assert here.wait_for_method_failed()
    assert not context().is_cancellation_requested()
