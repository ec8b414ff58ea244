"""Streams: messages that Steps and callers write at once and readers follow, on a Redis that may be away."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis
from asgiref.sync import async_to_sync
from celery import current_app
from django.db import connection
from pytest_django import Settings

from dexflows import (
    AsyncClient,
    Context,
    PersistenceSchema,
    Stream,
    UndeclaredAttributeError,
    force_complete,
    graceful_complete,
)
from dexflows.engine import stream_server, streams
from dexflows.engine.stream_server import Purpose
from dexflows.errors import (
    FlowNotFoundError,
    InvalidRequestError,
    UnavailableError,
    ValueMappingError,
    ValueTooLargeError,
    WorkerInvocationError,
)
from dexflows.options import StartFlowOptions
from dexflows.registry import registry
from dexflows.retry import RetryPolicy
from dexflows.states import IdReusePolicy
from dexflows.streaming import _Place
from tests.engine.kit import DEADLINE, Lab, in_thread, make_due, result, rows, step, value
from tests.engine.test_client import MISSING_RUN
from tests.flows_lab import Handler, LabFlow, LabStep
from tests.stories.servers import Broker, free_port

words = Stream("words", str, capacity_bytes=2048)
points = Stream("points", dict[str, list[datetime]])
foreign = Stream("words", str)


class StreamLab(LabFlow):
    """The lab's Flow with two Streams."""

    def get_flow_type(self) -> str:
        return "LabFlow"

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(*super().get_persistence_schema().definitions, words, points)


@pytest.fixture(autouse=True)
def embedded_server() -> None:
    """Start the embedded broker, where there is one: Streams are kept in the broker's Redis."""
    with current_app.connection_for_write():
        pass


@pytest.fixture
def stream_lab(lab: Lab) -> Lab:
    """Give a started Flow with Streams that no Step drives."""
    lab.flow = registry.register(StreamLab())
    lab.start()
    return lab


def run_step(lab: Lab, handler: Handler, **options: Any) -> Any:
    """Run one Step to the end of its first attempt; returns its run ID."""
    lab.flow = registry.register(StreamLab(LabStep("Work", handler, **options)))
    run_id = lab.start()
    lab.run_all()
    return run_id


def write(lab: Lab, *texts: str, source: str = "me") -> None:
    for text in texts:
        assert lab.client.write_stream("flow", words, source, text) is not None


def texts(page: Any) -> list[str]:
    return [message.value for message in page.messages]


def server_client() -> "redis.Redis":
    url, _ = stream_server.address()
    assert url is not None
    return stream_server.client_of(url)


def test_a_step_writes_at_once_in_order_and_names_itself(lab: Lab) -> None:
    seen: list[Any] = []

    def handler(context: Context, input: str) -> Any:
        words.write(context, "one")
        words.write(context, "two")
        seen.extend(texts(lab.client.read_stream("flow", words)))
        return force_complete()

    run_id = run_step(lab, handler)
    assert seen == ["one", "two"]
    assert step(run_id, "Work-1") == "COMPLETED"
    messages = lab.client.read_stream("flow", words).messages
    assert [message.source for message in messages] == ["Work-1", "Work-1"]
    assert messages[0].id < messages[1].id
    assert abs(messages[0].at - datetime.now(UTC)) < timedelta(minutes=1)


def test_what_a_failed_attempt_wrote_stays_and_a_retry_writes_again(lab: Lab) -> None:
    def handler(context: Context, input: str) -> Any:
        words.write(context, f"attempt {context.attempt}")
        if context.attempt == 1:
            raise RuntimeError("the first attempt fails")
        return force_complete()

    run_id = run_step(lab, handler, execute_retry=RetryPolicy(initial_interval=0.001))
    for key in make_due(run_id):
        lab.run(key)
    assert texts(lab.client.read_stream("flow", words)) == ["attempt 1", "attempt 2"]


def test_values_come_back_in_their_type(stream_lab: Lab) -> None:
    sent = {"naïve ☃ 🚀": [datetime(2024, 5, 1, 12, tzinfo=UTC)], "": []}
    returned = stream_lab.client.write_stream("flow", points, "me", sent)
    [message] = stream_lab.client.read_stream("flow", points).messages
    assert message == returned
    assert message.value == sent
    assert message.value is not sent


@pytest.mark.parametrize(
    ("stream", "given", "path"),
    [
        (words, 5, "$"),
        (words, "a\0b", "$"),
        (words, "\ud800", "$"),
        (points, {"a": [datetime(2024, 5, 1, tzinfo=UTC), "x"]}, "$.a[1]"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_path(
    stream_lab: Lab, stream: Any, given: Any, path: str
) -> None:
    with pytest.raises(ValueMappingError) as refused:
        stream_lab.client.write_stream("flow", stream, "me", given)
    assert refused.value.path == path


def test_a_value_over_the_capacity_is_too_large(stream_lab: Lab) -> None:
    write(stream_lab, "x" * 2046)
    with pytest.raises(ValueTooLargeError):
        write(stream_lab, "x" * 2047)


def test_a_value_over_the_general_limit_is_too_large(stream_lab: Lab, settings: Settings) -> None:
    settings.DEXFLOWS = {"MAX_VALUE_BYTES": 10}
    with pytest.raises(ValueTooLargeError):
        write(stream_lab, "x" * 9)


def test_a_bad_value_fails_the_attempt_of_a_step(lab: Lab) -> None:
    def handler(context: Context, input: str) -> Any:
        words.write(context, "a\0b")
        return force_complete()

    run_step(lab, handler)
    [(status, message)] = rows("SELECT status, error_message FROM dexflows_run")
    assert status == "FAILED"
    assert "U+0000" in message


def test_a_stream_is_recognised_by_identity(lab: Lab) -> None:
    errors: list[Exception] = []

    def handler(context: Context, input: str) -> Any:
        for use in (foreign.write, lambda context, _: foreign.text_writer(context)):
            try:
                use(context, "x")
            except UndeclaredAttributeError as error:
                errors.append(error)
        return force_complete()

    run_step(lab, handler)
    assert len(errors) == 2
    for ask in (
        lambda: lab.client.write_stream("flow", foreign, "me", "x"),
        lambda: lab.client.read_stream("flow", foreign),
        lambda: lab.client.list_stream_messages("flow", foreign),
        lambda: lab.client.read_stream("flow", LabFlow.c),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidRequestError):
            ask()


@pytest.mark.parametrize("use", [lambda context: words.write(context, "x"), words.text_writer])
def test_an_rpc_cannot_write_and_changes_nothing(stream_lab: Lab, use: Any) -> None:
    def handler(context: Context) -> None:
        LabFlow.note.set(context, "written")
        use(context)

    stream_lab.flow.on_call = handler
    with pytest.raises(WorkerInvocationError, match="only a Step's handler writes Streams"):
        stream_lab.client.invoke_rpc(stream_lab.flow.call, "flow")
    assert stream_lab.client.get_attribute("flow", LabFlow.note) is None
    assert texts(stream_lab.client.read_stream("flow", words)) == []


def test_what_is_kept_stays_within_the_capacity_and_the_oldest_go_first(stream_lab: Lab) -> None:
    for size in (1, 100, 7, 1900, 3, 500, 500, 500, 500, *range(30)):
        write(stream_lab, "x" * size)
        kept = stream_lab.client.read_stream("flow", words, limit=1000).messages
        costs = [len(message.value) + 2 + len(message.source) + 64 for message in kept]
        assert kept[-1].value == "x" * size
        assert sum(costs) <= words.capacity_bytes or len(costs) == 1
    # No more is dropped than must be: one of 500 bytes more would not fit beside these.
    assert sum(costs) > words.capacity_bytes - 200


def test_many_small_messages_make_room_for_one_large(stream_lab: Lab) -> None:
    write(stream_lab, *(str(number) for number in range(28)), "x" * 2046)
    assert texts(stream_lab.client.read_stream("flow", words)) == ["x" * 2046]


def test_a_stream_expires_after_its_last_message(stream_lab: Lab, settings: Settings) -> None:
    run_id = value("SELECT run_id FROM dexflows_run")
    with server_client() as client:
        write(stream_lab, "a")
        assert 604_000_000 < client.pttl(streams.key_of(run_id, "words")) <= 604_800_000
        settings.DEXFLOWS = {"STREAMS_EXPIRE_SECONDS": 0.001}
        write(stream_lab, "b")
        deadline = time.monotonic() + DEADLINE
        while client.exists(streams.key_of(run_id, "words")):
            assert time.monotonic() < deadline
    assert texts(stream_lab.client.read_stream("flow", words)) == []


def test_the_key_names_the_run_and_begins_with_the_brokers_prefix(settings: Settings) -> None:
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": "mine:"}
    assert streams.key_of(MISSING_RUN, "words") == f"mine:dexflows:stream:{{{MISSING_RUN}}}:words"  # type: ignore[arg-type]
    settings.DEXFLOWS = {"STREAMS_URL": "redis://elsewhere"}
    assert streams.key_of(MISSING_RUN, "words").startswith("dexflows:stream:")  # type: ignore[arg-type]


def test_reading_goes_forward_with_tokens_and_sees_each_message_once(stream_lab: Lab) -> None:
    client = stream_lab.client
    empty = client.read_stream("flow", words)
    assert empty.messages == ()
    write(stream_lab, "a", "b", "c")
    first = client.read_stream("flow", words, empty.next_page_token, 2)
    second = client.read_stream("flow", words, first.next_page_token, 2)
    third = client.read_stream("flow", words, second.next_page_token, 2)
    write(stream_lab, "d")
    fourth = client.read_stream("flow", words, third.next_page_token, 2)
    assert [texts(page) for page in (first, second, third, fourth)] == [["a", "b"], ["c"], [], ["d"]]


def test_a_reader_that_was_too_slow_goes_on_with_the_oldest_there_is(stream_lab: Lab) -> None:
    write(stream_lab, "a", "b")
    page = stream_lab.client.read_stream("flow", words, limit=1)
    write(stream_lab, "x" * 1850, "c")
    assert texts(stream_lab.client.read_stream("flow", words, page.next_page_token)) == ["x" * 1850, "c"]


def test_listing_goes_backward_from_the_newest(stream_lab: Lab) -> None:
    client = stream_lab.client
    write(stream_lab, "a", "b", "c", "d")
    first = client.list_stream_messages("flow", words, 2)
    write(stream_lab, "e")
    second = client.list_stream_messages("flow", words, 2, first.next_page_token)
    assert (texts(first), texts(second), second.next_page_token) == (["d", "c"], ["b", "a"], "")
    assert texts(client.list_stream_messages("flow", words)) == ["e", "d", "c", "b", "a"]


def test_a_token_stays_with_its_run(stream_lab: Lab) -> None:
    client = stream_lab.client
    write(stream_lab, "old")
    page, first = client.read_stream("flow", words), client.describe_flow("flow").run_id
    stream_lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_TERMINATE_IF_RUNNING))
    client.write_stream("flow", words, "me", "late", run_id=first)
    write(stream_lab, "new")
    assert texts(client.read_stream("flow", words)) == ["new"]
    assert texts(client.read_stream("flow", words, page.next_page_token)) == ["late"]
    assert texts(client.list_stream_messages("flow", words, run_id=first)) == ["late", "old"]
    latest = client.describe_flow("flow").run_id
    with pytest.raises(InvalidRequestError, match="another Stream or run"):
        client.read_stream("flow", words, page.next_page_token, run_id=latest)


def test_tokens_that_were_not_given_out_are_refused(stream_lab: Lab) -> None:
    client = stream_lab.client
    write(stream_lab, "a", "b")
    forward = client.read_stream("flow", words).next_page_token
    backward = client.list_stream_messages("flow", words, 1).next_page_token
    bad = ["x", "é", "\ud800", "a" * 10_000, forward[:-4], forward + "====", backward, 5, forward.swapcase()]
    for token in bad:
        with pytest.raises(InvalidRequestError):
            client.read_stream("flow", words, token)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError):
        client.list_stream_messages("flow", words, 2, forward)
    with pytest.raises(InvalidRequestError, match="another Stream"):
        client.read_stream("flow", points, forward)  # type: ignore[arg-type]
    stream_lab.start("other")
    with pytest.raises(FlowNotFoundError):
        client.read_stream("other", words, forward)


def test_a_forged_place_does_not_reach_the_server(stream_lab: Lab) -> None:
    run = UUID(stream_lab.client.describe_flow("flow").run_id)
    for entry in ("0-0", "18446744073709551615-18446744073709551615", "-", "+", "1-", "x-1", "1"):
        with pytest.raises(InvalidRequestError):
            stream_lab.client.read_stream("flow", words, _Place("after", run, "words", entry).to_token())


def test_bad_arguments_are_refused(stream_lab: Lab) -> None:
    client = stream_lab.client
    refused: list[tuple[Any, dict[str, Any]]] = [
        *((client.read_stream, {"limit": limit}) for limit in (0, 1001, True, "5", None)),
        *((client.read_stream, {"wait": wait}) for wait in (-1, 61, float("nan"), "1", True, None)),
        *((client.list_stream_messages, {"page_size": size}) for size in (0, 1001, "20", None)),
        *((ask, {"run_id": "x"}) for ask in (client.read_stream, client.list_stream_messages)),
    ]
    for ask, arguments in refused:
        with pytest.raises(InvalidRequestError):
            ask("flow", words, **arguments)


def test_a_source_is_a_printable_text(stream_lab: Lab) -> None:
    for source in ("", "x" * 256, "a\nb", "a\0", "\ud800", None, 5):
        with pytest.raises(InvalidRequestError, match="source"):
            stream_lab.client.write_stream("flow", words, source, "x")  # type: ignore[arg-type]
    write(stream_lab, "x", source="Ünïcode / ☃ " + "x" * 240)


def test_a_missing_flow_is_not_found(stream_lab: Lab) -> None:
    client = stream_lab.client
    for ask in (
        lambda: client.write_stream("missing", words, "me", "x"),
        lambda: client.read_stream("missing", words),
        lambda: client.list_stream_messages("missing", words),
        lambda: client.read_stream("flow", words, run_id=MISSING_RUN),
    ):
        with pytest.raises(FlowNotFoundError):
            ask()


def test_a_closed_run_is_still_read(lab: Lab) -> None:
    def handler(context: Context, input: str) -> Any:
        words.write(context, "last")
        return graceful_complete()

    run_step(lab, handler)
    assert lab.client.wait_for_flow("flow", 0).is_terminal
    assert texts(lab.client.read_stream("flow", words)) == ["last"]
    assert texts(lab.client.list_stream_messages("flow", words)) == ["last"]


def test_messages_of_an_older_type_are_left_out(
    stream_lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(stream_lab, "a", "b")
    monkeypatch.setattr(words, "codec", points.codec)
    assert texts(stream_lab.client.read_stream("flow", words)) == []
    assert "2 messages do not fit its type" in caplog.text
    monkeypatch.undo()
    assert texts(stream_lab.client.read_stream("flow", words)) == ["a", "b"]


def test_reading_waits_for_the_next_message_and_holds_no_database_connection(stream_lab: Lab) -> None:
    reading = in_thread(lambda: stream_lab.client.read_stream("flow", words, wait=DEADLINE))
    write(stream_lab, "now")
    page = result(reading)
    assert texts(page) == ["now"]
    connection.ensure_connection()
    started = time.monotonic()
    assert stream_lab.client.read_stream("flow", words, page.next_page_token, wait=0.05).messages == ()
    assert time.monotonic() - started >= 0.05
    assert connection.connection is None


def test_other_calls_of_the_async_client_go_on_while_one_reads(stream_lab: Lab) -> None:
    async def use() -> list[str]:
        client = AsyncClient()
        reading = asyncio.ensure_future(client.read_stream("flow", words, wait=DEADLINE))
        await asyncio.sleep(0)
        await client.write_stream("flow", words, "me", "now")
        return texts(await reading)

    assert async_to_sync(use)() == ["now"]


def test_a_text_writer_joins_pieces(lab: Lab) -> None:
    def handler(context: Context, input: str) -> Any:
        with words.text_writer(context) as writer:
            for _ in range(600):
                writer.write("é☃")
            writer.write("")
        return force_complete()

    run_step(lab, handler)
    page = lab.client.read_stream("flow", words)
    # A quarter of the capacity is 512 bytes, and one piece is 5.
    assert all(len(text) == 2 * 102 for text in texts(page)[:-1])
    assert "".join(texts(page)) == "é☃" * (102 * (len(page.messages) - 1)) + texts(page)[-1]


def test_a_text_writer_writes_what_it_has_when_the_next_piece_takes_long(lab: Lab) -> None:
    seen: list[str] = []

    def handler(context: Context, input: str) -> Any:
        with words.text_writer(context) as writer:
            writer.write("first")
            seen.extend(texts(lab.client.read_stream("flow", words, wait=DEADLINE)))
            writer.write(" second")
        return force_complete()

    run_step(lab, handler)
    assert seen == ["first"]
    assert texts(lab.client.read_stream("flow", words)) == ["first", " second"]


def test_a_text_writer_writes_the_rest_when_the_handler_fails(lab: Lab) -> None:
    def handler(context: Context, input: str) -> Any:
        with words.text_writer(context) as writer:
            writer.write("so far")
            writer.write("a\0")
        return force_complete()

    run_step(lab, handler)
    assert texts(lab.client.read_stream("flow", words)) == ["so far"]


def test_only_a_stream_of_text_has_a_text_writer(lab: Lab) -> None:
    errors: list[Exception] = []

    def handler(context: Context, input: str) -> Any:
        try:
            points.text_writer(context)  # type: ignore[misc]
        except InvalidRequestError as error:
            errors.append(error)
        return force_complete()

    run_step(lab, handler)
    assert "only a Stream of str" in str(errors[0])


@pytest.fixture(params=["closed", "silent", "foreign"])
def absent(request: pytest.FixtureRequest, settings: Settings) -> Iterator[str]:
    """Give Streams a server that refuses, one that takes connections and never answers, or one that is no Redis."""
    port = free_port()
    settings.DEXFLOWS = {"STREAMS_URL": f"redis://127.0.0.1:{port}/3"}
    if request.param == "closed":
        yield request.param
        return
    with socket.create_server(("127.0.0.1", port)) as listener:
        if request.param == "foreign":
            in_thread(_answer_nonsense, listener)
        yield request.param


def _answer_nonsense(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-nonsense\r\n")


def test_a_step_succeeds_without_redis_and_is_hardly_held_up(
    lab: Lab, absent: str, caplog: pytest.LogCaptureFixture
) -> None:
    took: list[float] = []

    def handler(context: Context, input: str) -> Any:
        started = time.monotonic()
        for number in range(200):
            words.write(context, str(number))
        with words.text_writer(context) as writer:
            writer.write("text")
        took.append(time.monotonic() - started)
        return force_complete()

    with caplog.at_level(logging.WARNING, "dexflows.engine.stream_server"):
        run_id = run_step(lab, handler)
    assert step(run_id, "Work-1") == "COMPLETED"
    assert took[0] < 2.0
    assert len([each for each in caplog.records if each.name == stream_server.__name__]) == 1


def test_callers_are_told_that_redis_is_away(stream_lab: Lab, absent: str) -> None:
    client = stream_lab.client
    assert client.write_stream("flow", words, "me", "lost") is None
    started = time.monotonic()
    for ask in (client.read_stream, client.list_stream_messages):
        for _ in range(10):
            with pytest.raises(UnavailableError, match="Streams cannot be read now"):
                ask("flow", words)
    assert time.monotonic() - started < 2.0


def test_without_any_redis_messages_are_lost_and_reading_says_what_to_set(
    stream_lab: Lab, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CELERY_BROKER_URL = "amqp://guest@rabbit//"
    stream_server._server.cache_clear()
    for _ in range(3):
        assert stream_lab.client.write_stream("flow", words, "me", "lost") is None
    with pytest.raises(UnavailableError, match="STREAMS_URL"):
        stream_lab.client.read_stream("flow", words)
    assert [each.getMessage() for each in caplog.records if "written" in each.getMessage()] == [
        "Streams cannot be written now: Streams have no Redis: set DEXFLOWS['STREAMS_URL']"
    ]


def test_a_server_that_is_back_is_used_again(
    stream_lab: Lab, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    working, _ = stream_server.address()
    settings.DEXFLOWS = {"STREAMS_URL": working}
    server = stream_server.server(Purpose.WRITE)
    with pytest.raises(UnavailableError):
        server.ask(lambda redis: 1 / 0)
    assert stream_lab.client.write_stream("flow", words, "me", "too early") is None
    monkeypatch.setattr(server, "_quiet_until", 0.0)
    with caplog.at_level(logging.INFO, "dexflows.engine.stream_server"):
        write(stream_lab, "again", "and again")
    assert texts(stream_lab.client.read_stream("flow", words)) == ["again", "and again"]
    assert [each.getMessage() for each in caplog.records if "again" in each.getMessage()] == [
        "Streams can be written again"
    ]


def test_only_one_caller_at_a_time_asks_a_server_that_is_away_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = stream_server.StreamServer(f"redis://127.0.0.1:{free_port()}", Purpose.READ)
    asked: list[int] = []

    def ask(number: int) -> None:
        with suppress(UnavailableError):
            server.ask(lambda _: asked.append(number) or probe(number))  # type: ignore[func-returns-value]

    def probe(number: int) -> None:
        if number == 2:
            ask(3)  # as another thread does meanwhile
        raise ConnectionError

    ask(1)
    monkeypatch.setattr(server, "_quiet_until", 0.0)
    ask(2)
    assert asked == [1, 2]
    assert len(caplog.records) == 1


def test_a_connection_that_broke_is_replaced(stream_lab: Lab) -> None:
    write(stream_lab, "before")
    with server_client() as client:
        own = client.client_id()
        for each in client.client_list():
            if int(each["id"]) != own and each["cmd"].startswith(("eval", "xr")):
                with suppress(redis.ResponseError):
                    client.client_kill(each["addr"])
    write(stream_lab, "after")
    assert texts(stream_lab.client.read_stream("flow", words)) == ["before", "after"]


@pytest.fixture
def own_server(tmp_path: Path, settings: Settings) -> Iterator["redis.Redis"]:
    """Give Streams a server that the test may break, and a client of it."""
    broker = Broker(tmp_path)
    broker.start()
    settings.DEXFLOWS = {"STREAMS_URL": broker.url}
    try:
        with broker.client() as client:
            yield client
    finally:
        broker.stop()


def test_a_server_that_is_full_is_still_read(stream_lab: Lab, own_server: "redis.Redis") -> None:
    write(stream_lab, "before")
    own_server.config_set("maxmemory", 1)
    assert stream_lab.client.write_stream("flow", words, "me", "lost") is None
    assert texts(stream_lab.client.read_stream("flow", words)) == ["before"]


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(
    stream_lab: Lab, own_server: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    write(stream_lab, "before")
    own_server.client_pause(60_000, all=False)  # of scripts and other writes
    assert stream_lab.client.write_stream("flow", words, "me", "late") is None
    own_server.client_unpause()
    monkeypatch.setattr(stream_server.server(Purpose.WRITE), "_quiet_until", 0.0)
    after = stream_lab.client.write_stream("flow", words, "me", "after")
    assert stream_lab.client.list_stream_messages("flow", words, 1).messages == (after,)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+socket:///run/valkey.sock?virtual_host=3", {"path": "/run/valkey.sock", "db": 3}),
        ("valkey://host:7000/2", {"host": "host", "port": 7000, "db": 2}),
        ("redis://:p%40ss@host?socket_timeout=30", {"password": "p@ss", "socket_timeout": 0.3}),
        ("rediss://host?ssl_cert_reqs=CERT_NONE", {"host": "host", "ssl_cert_reqs": "none"}),
    ],
)
def test_urls_as_celery_takes_them(url: str, expected: dict[str, Any]) -> None:
    options = stream_server.client_of(url).connection_pool.connection_kwargs
    assert {name: options[name] for name in expected} == expected
