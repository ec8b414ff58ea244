"""Streams are declared beside Attributes and Channels, and checked with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dexflows import (
    Attribute,
    Channel,
    Context,
    FlowDefinitionError,
    InvalidRequestError,
    PersistenceSchema,
    Stream,
    register,
)
from dexflows.buffer import AttributeBuffer, ChannelBuffer
from dexflows.registry import registry
from tests.language.flows import Base

progress = Stream("progress", str)


@pytest.fixture(autouse=True)
def empty_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def test_a_flow_owns_the_streams_of_its_schema() -> None:
    definition = registry.definition_of(register(Base(schema=PersistenceSchema.of(progress))))
    assert definition.streams == {"progress": progress}
    assert (definition.attributes, definition.channels) == ({}, {})
    assert progress.capacity_bytes == 262_144


@pytest.mark.parametrize("other", [Attribute("progress", str), Channel("progress", str), Stream("progress", str)])
def test_a_name_is_one_definition_of_whatever_kind(other: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="two persistence definitions are named 'progress'"):
        register(Base(schema=PersistenceSchema.of(progress, other)))


def test_a_type_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="values of type object"):
        register(Base(schema=PersistenceSchema.of(Stream("anything", object))))


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "x" * 256, None])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="Stream name"):
        Stream(name, str)


@pytest.mark.parametrize("capacity", [0, 1023, 64 * 1024 * 1024 + 1, True, 4096.0, "4096", None])
def test_a_bad_capacity_is_refused(capacity: Any) -> None:
    with pytest.raises(FlowDefinitionError, match="capacity_bytes must be a whole number"):
        Stream("progress", str, capacity_bytes=capacity)


def test_a_context_that_was_given_no_way_to_write_refuses() -> None:
    buffers: Any = {"attributes": AttributeBuffer(schema={}), "channels": ChannelBuffer(schema={})}
    context = Context(flow_id="flow", run_id="run", **buffers)
    with pytest.raises(InvalidRequestError, match=r"only a Step.s handler writes Streams.*'progress'"):
        progress.write(context, "x")
