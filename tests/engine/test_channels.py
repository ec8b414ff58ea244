"""Channels and ChannelMaps: publishing from everywhere, looking, deleting, and closing when they are empty."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from dexflows import (
    Channel,
    Context,
    Flow,
    FlowConfig,
    IdReusePolicy,
    PersistenceSchema,
    RPCInvokeOptions,
    RPCResult,
    StartFlowOptions,
    StepExecutionId,
    StepMovement,
    TimerId,
    Wait,
    dead_end,
    force_complete_if_channels_empty,
    go_to,
    graceful_complete,
)
from dexflows.errors import (
    ChannelMessageNotFoundError,
    ChannelNotLoadedError,
    FlowNotActiveOrNotFoundError,
    InvalidRequestError,
    ValueMappingError,
    ValueTooLargeError,
    WorkerInvocationError,
)
from dexflows.registry import registry
from tests.engine.kit import Lab, Pause, in_thread, messages, result, rows, step, steps, value, wait_until_blocked
from tests.flows_lab import LabFlow, LabStep, WaitingLabStep

ch, cm, anything = LabFlow.ch, LabFlow.cm, LabFlow.anything


def returns_what_it_took(context: Context, input: str) -> Any:
    return graceful_complete(ch.results(context))


def on_channels(lab: Lab, act: Any, **options: Any) -> Any:
    """What a function in an RPC that loads all Channels returns."""
    seen: list[Any] = []

    def call(context: Context) -> None:
        seen.append(act(context))

    lab.flow.on_call = call
    lab.client.invoke_rpc(lab.flow.call_on_channels, "flow", **options)
    return seen[0]


class TestPublishing:
    """From Steps, RPCs and the Client; batches keep their order."""

    def test_a_step_publishes_when_it_commits(self, lab: Lab) -> None:
        def work(context: Context, input: str) -> Any:
            ch.publish(context, 1, 2)
            cm.publish(context, "x", "a")
            ch.publish(context, 3)
            assert rows("SELECT * FROM dexflows_channel_message") == []
            return dead_end()

        lab.define(LabStep("S", work))
        run_id = lab.start()
        lab.run_all()
        assert (messages(run_id), messages(run_id, "cm", "x")) == ([1, 2, 3], ["a"])

    def test_a_step_that_raises_publishes_nothing(self, lab: Lab) -> None:
        def work(context: Context, input: str) -> Any:
            ch.publish(context, 1)
            raise RuntimeError("no")

        lab.define(LabStep("S", work))
        run_id = lab.start()
        lab.run_all()
        assert messages(run_id) == []

    def test_an_rpc_publishes_with_its_commit_and_wakes_who_waits(self, lab: Lab) -> None:
        waiter = WaitingLabStep("W", returns_what_it_took, lambda c, i: Wait.until(ch.for_n(2)))
        lab.define(waiter)
        run_id = lab.start()
        lab.run_all()

        def fail(context: Context) -> None:
            ch.publish(context, 9, 9)
            raise RuntimeError("no")

        lab.flow.on_call = fail
        with pytest.raises(WorkerInvocationError):
            lab.client.invoke_rpc(lab.flow.call, "flow")
        assert messages(run_id) == []
        lab.flow.on_call = lambda context: ch.publish(context, 1, 2)
        lab.client.invoke_rpc(lab.flow.call, "flow")
        assert lab.bell.names() == ["W-1"]
        lab.run_all()
        assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [1, 2]

    def test_the_client_publishes_a_batch_in_order_and_returns_its_ids(self, lab: Lab) -> None:
        lab.define()
        run_id = lab.start()
        first = lab.client.publish("flow", ch, 1, 2, 3)
        second = lab.client.publish("flow", cm, "x", "a")
        assert messages(run_id) == [1, 2, 3]
        assert messages(run_id, "cm", "x") == ["a"]
        numbers = [int(each) for each in (*first, *second)]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 4

    def test_publishing_nothing_is_nothing(self, lab: Lab) -> None:
        lab.define()
        lab.start()
        assert lab.client.publish("flow", ch) == []

    def test_inside_a_callers_transaction_it_is_part_of_that(self, lab: Lab) -> None:
        lab.define(WaitingLabStep("W", None, lambda c, i: Wait.until(ch.for_one())))
        run_id = lab.start()
        lab.run_all()
        with transaction.atomic():
            lab.client.publish("flow", ch, 1)
            transaction.set_rollback(True)
        assert (messages(run_id), step(run_id, "W-1"), lab.bell.names()) == ([], "WAITING", [])

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((ch, "one"), ValueMappingError),
            ((ch, 1, None), ValueMappingError),
            ((cm, "", "a"), ValueMappingError),
            ((cm, "a/b", "a"), ValueMappingError),
            ((cm,), ValueMappingError),
            ((Channel("ch", int), 1), InvalidRequestError),
            (("ch", 1), InvalidRequestError),
        ],
    )
    def test_bad_messages_are_refused_whole(self, lab: Lab, arguments: tuple[Any, ...], error: type[Exception]) -> None:
        lab.define()
        run_id = lab.start()
        with pytest.raises(error):
            lab.client.publish("flow", *arguments)
        assert messages(run_id) == []

    def test_a_message_over_the_limit_is_refused_by_name(self, lab: Lab, settings: Any) -> None:
        """FLW-09."""
        settings.DEXFLOWS = {**settings.DEXFLOWS, "MAX_VALUE_BYTES": 10}
        lab.define()
        run_id = lab.start()
        lab.client.publish("flow", cm, "x", "a" * 8)
        with pytest.raises(ValueTooLargeError, match="message of cm/x takes 11 bytes, more than the limit of 10"):
            lab.client.publish("flow", cm, "x", "a" * 9)
        assert messages(run_id, "cm", "x") == ["a" * 8]

    def test_a_channel_of_another_flow_is_refused(self, lab: Lab) -> None:
        other = Channel("ch", int)

        class OtherFlow(Flow[None]):
            def get_persistence_schema(self) -> PersistenceSchema:
                return PersistenceSchema.of(other)

        registry.register(OtherFlow())
        lab.define()
        lab.start()
        with pytest.raises(InvalidRequestError, match="is a LabFlow, which has no such Channel"):
            lab.client.publish("flow", other, 1)

    def test_closed_and_missing_runs_take_no_messages(self, lab: Lab) -> None:
        lab.define()
        lab.start()
        lab.client.stop_flow("flow")
        for flow_id in ("flow", "nowhere"):
            with pytest.raises(FlowNotActiveOrNotFoundError):
                lab.client.publish(flow_id, ch, 1)

    def test_a_run_id_names_the_run_that_is_meant(self, lab: Lab) -> None:
        lab.define(WaitingLabStep("W"), start=False)
        old = lab.start()
        lab.client.stop_flow("flow")
        new = lab.start(options=StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_PREVIOUS_FAILED))
        first_timer = (StepExecutionId("W"), TimerId.by_condition_index(0))
        with pytest.raises(FlowNotActiveOrNotFoundError, match="CANCELED"):
            lab.client.publish("flow", ch, 1, run_id=str(old))
        with pytest.raises(FlowNotActiveOrNotFoundError, match="CANCELED"):
            lab.client.skip_timer("flow", *first_timer, run_id=str(old))
        lab.client.publish("flow", ch, 2, run_id=str(new))
        lab.client.publish("flow", ch, 3)
        lab.client.skip_timer("flow", *first_timer, run_id=str(new))
        assert (messages(old), messages(new)) == ([], [2, 3])

    def test_an_accepted_message_is_in_the_run_when_it_closes(self, lab: Lab) -> None:
        """FLW-04: the close waits for the publisher, a publisher that comes later finds the run closed."""
        lab.define()
        run_id = lab.start()
        with transaction.atomic():
            lab.client.publish("flow", ch, 1)
            stopping = in_thread(lab.client.stop_flow, "flow")
            wait_until_blocked("dexflows_stop")
        result(stopping)
        assert messages(run_id) == [1]
        with pytest.raises(FlowNotActiveOrNotFoundError):
            lab.client.publish("flow", ch, 2)

    @pytest.mark.parametrize(
        "first",
        [
            lambda lab: lab.client.publish("flow", ch, 1),
            lambda lab: lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(0)),
            lambda lab: lab.client.update_flow_config("flow", FlowConfig(worker_target="other")),
        ],
    )
    def test_a_caller_may_go_on_writing_while_somebody_wants_to_close(
        self, lab: Lab, first: Callable[[Lab], object]
    ) -> None:
        """Whatever takes the run's row has passed its gate before, so that a close cannot come in between."""
        lab.define(WaitingLabStep("W"), start=False)
        run_id = lab.start()
        with transaction.atomic():
            first(lab)
            stopping = in_thread(lab.client.stop_flow, "flow")
            wait_until_blocked("dexflows_stop")
            rows("SET LOCAL lock_timeout = '100ms'")
            lab.client.set_attribute("flow", LabFlow.note, "written")
            lab.client.publish("flow", ch, 2)
            lab.client.skip_timer("flow", StepExecutionId("W"), TimerId.by_condition_index(0))
            lab.client.update_flow_config("flow", FlowConfig(worker_target="other"))
        result(stopping)
        assert (messages(run_id)[-1:], lab.client.get_attribute("flow", LabFlow.note)) == ([2], "written")
        assert lab.client.describe_flow("flow").status == "CANCELED"


class TestLooking:
    """Pending messages and sizes, loaded as the options say."""

    def test_an_rpc_sees_what_is_pending(self, lab: Lab) -> None:
        lab.define()
        lab.start()
        ids = lab.client.publish("flow", ch, 5, 6)
        lab.client.publish("flow", cm, "x", "a")
        lab.client.publish("flow", cm, "y", "b", "c")
        seen = on_channels(
            lab,
            lambda c: (ch.pending(c), ch.size(c), cm.size(c, "y"), cm.size(c, "z"), cm.get_all_instance_keys(c)),
        )
        assert [(each.id, each.value) for each in seen[0]] == [(ids[0], 5), (ids[1], 6)]
        assert seen[1:] == (2, 2, 0, ["x", "y"])

    def test_what_is_not_loaded_cannot_be_looked_at(self, lab: Lab) -> None:
        lab.define()
        lab.start()
        for look in (ch.pending, ch.size, cm.get_all_instance_keys, lambda c: cm.size(c, "x")):
            lab.flow.on_call = look
            with pytest.raises(WorkerInvocationError, match=f"{ChannelNotLoadedError.__name__}.*load"):
                lab.client.invoke_rpc(lab.flow.call, "flow")

    def test_the_caller_may_load_one_instance(self, lab: Lab) -> None:
        lab.define()
        lab.start()
        lab.client.publish("flow", cm, "x", "a")
        lab.flow.on_call = lambda context: f"{cm.size(context, 'x')}"
        options = RPCInvokeOptions(load_channel_map_instances=(cm.load("x"),))
        assert lab.client.invoke_rpc(lab.flow.call, "flow", options=options) == "1"
        with pytest.raises(WorkerInvocationError):
            lab.client.invoke_rpc(
                lab.flow.call, "flow", options=RPCInvokeOptions(load_channel_map_instances=(cm.load("y"),))
            )

    def test_a_step_sees_what_its_options_load_for_each_method(self, lab: Lab) -> None:
        seen: list[Any] = []

        def wait_for(context: Context, input: str) -> Wait:
            seen.append(ch.size(context))
            with pytest.raises(ChannelNotLoadedError):
                cm.size(context, "x")
            return Wait.skip_immediately()

        def execute(context: Context, input: str) -> Any:
            seen.append(cm.size(context, "x"))
            with pytest.raises(ChannelNotLoadedError):
                ch.size(context)
            return dead_end()

        options = {"wait_for_load_channels": (ch,), "execute_load_channels": (cm.load("x"),)}
        waiter = WaitingLabStep("W", execute, wait_for, **options)
        lab.define(waiter, start=False)
        lab.start()
        lab.client.publish("flow", ch, 1, 2)
        lab.client.publish("flow", cm, "x", "a")
        for movement in (waiter, StepMovement.of(waiter, "", waiter.options)):
            for key in lab.create(movement):
                lab.run(key)
        assert seen == [2, 1, 2, 1]


class TestDeleting:
    """Deletion by message ID."""

    def test_an_rpc_deletes_one_message(self, lab: Lab) -> None:
        lab.define()
        run_id = lab.start()
        ids = lab.client.publish("flow", ch, 1, 2, 3)

        def delete(context: Context) -> list[int]:
            ch.delete_message(context, ids[1])
            return [each.value for each in ch.pending(context)]

        assert on_channels(lab, delete) == [1, 3]
        assert messages(run_id) == [1, 3]

    @pytest.mark.parametrize("message_id", ["999999999", "", "-1", "1.5", "x", "9" * 40, "\u0663"])
    def test_a_message_that_is_not_there_undoes_the_rpc(self, lab: Lab, message_id: str) -> None:
        lab.define()
        run_id = lab.start()
        lab.client.publish("flow", ch, 1)

        def delete(context: Context) -> None:
            LabFlow.note.set(context, "written")
            ch.delete_message(context, message_id)

        lab.flow.on_call = delete
        with pytest.raises((ChannelMessageNotFoundError, WorkerInvocationError), match="message"):
            lab.client.invoke_rpc(lab.flow.call, "flow")
        assert messages(run_id) == [1]
        assert lab.client.get_attribute("flow", LabFlow.note) is None

    def test_a_message_of_another_channel_is_not_there(self, lab: Lab) -> None:
        lab.define()
        run_id = lab.start()
        (message,) = lab.client.publish("flow", cm, "x", "a")
        for act in (lambda c: ch.delete_message(c, message), lambda c: cm.delete_message(c, "y", message)):
            lab.flow.on_call = act
            with pytest.raises(ChannelMessageNotFoundError, match=message):
                lab.client.invoke_rpc(lab.flow.call, "flow")
        assert messages(run_id, "cm", "x") == ["a"]

    def test_of_two_deletions_of_one_message_the_second_fails(self, lab: Lab) -> None:
        lab.define()
        run_id = lab.start()
        (message,) = lab.client.publish("flow", ch, 1)
        pause = Pause()

        def delete_slowly(context: Context) -> None:
            ch.delete_message(context, message)
            pause.here()

        lab.flow.on_call = delete_slowly
        slow = in_thread(lab.client.invoke_rpc, lab.flow.call, "flow")
        with pause.reached():
            lab.flow.on_call = lambda context: ch.delete_message(context, message)
            lab.client.invoke_rpc(lab.flow.call, "flow")
        with pytest.raises(ChannelMessageNotFoundError):
            result(slow)
        assert messages(run_id) == []

    def test_a_step_that_deletes_what_is_gone_fails_its_attempt_and_sees_fresh_state_next(self, lab: Lab) -> None:
        def work(context: Context, input: str) -> Any:
            pending = ch.pending(context)
            if context.attempt == 1:
                lab.flow.on_call = lambda c: ch.delete_message(c, pending[0].id)
                lab.client.invoke_rpc(lab.flow.call, "flow")
            for each in pending:
                ch.delete_message(context, each.id)
            return graceful_complete(len(pending))

        lab.define(LabStep("S", work, execute_load_channels=(ch,)), start=False)
        run_id = lab.start()
        lab.client.publish("flow", ch, 1, 2)
        (key,) = lab.create(lab.flow.steps[0])
        lab.run(key)
        assert step(run_id, "S-1") == "BACKOFF"
        assert step(run_id, "S-1", "failure ->> 'error_type'") == "ChannelMessageNotFoundError"
        rows("UPDATE dexflows_step_execution SET state = 'QUEUED'")
        lab.run(key)
        assert lab.client.wait_for_flow("flow", 0).single_output(int) == 1

    @pytest.mark.parametrize("atomic", [False, True])
    def test_neither_a_wait_nor_an_atomic_step_keeps_anything_when_the_message_is_gone(
        self, lab: Lab, atomic: bool
    ) -> None:
        def delete(context: Context, input: str) -> Any:
            LabFlow.note.set(context, "written")
            ch.delete_message(context, "1")
            return dead_end() if atomic else Wait.until(ch.for_one())

        lab.define(LabStep("S", delete, execute_atomic=True) if atomic else WaitingLabStep("S", None, delete))
        run_id = lab.start()
        lab.run_all()
        assert step(run_id, "S-1") == "BACKOFF"
        assert step(run_id, "S-1", "failure ->> 'error_type'") == "ChannelMessageNotFoundError"
        assert lab.client.get_attribute("flow", LabFlow.note) is None


class TestCompletingIfEmpty:
    """force_complete_if_channels_empty."""

    def drain(self, lab: Lab, *channels: Any, before: Any = None, more: tuple[LabStep, ...] = ()) -> LabStep:
        def work(context: Context, input: str) -> Any:
            if before is not None:
                before(context)
            return force_complete_if_channels_empty("drained", StepMovement.of(fallback, "more"), *channels)

        fallback = LabStep("More")
        drain = LabStep("Drain", work, execute_load_channels=(ch,))
        lab.define(drain, fallback, *more, start=False)
        return drain

    def test_empty_channels_complete_the_run(self, lab: Lab) -> None:
        drain = self.drain(lab, ch, cm)
        run_id = lab.start()
        for key in lab.create(drain, drain):
            lab.run(key)
        outcome = lab.client.wait_for_flow("flow", 0)
        assert outcome.single_output(str) == "drained"
        assert steps(run_id) == {"Drain-1": "COMPLETED", "Drain-2": "CANCELED"}

    @pytest.mark.parametrize(
        ("channels", "completes"),
        [
            ((ch,), False),
            ((anything,), True),
            ((anything, ch), False),
            ((cm,), False),
            ((cm.load("x"),), False),
            ((cm.load("y"),), True),
        ],
    )
    def test_a_message_in_one_of_them_leads_to_the_fallback(self, lab: Lab, channels: Any, completes: bool) -> None:
        drain = self.drain(lab, *channels)
        run_id = lab.start()
        lab.client.publish("flow", ch, 1)
        lab.client.publish("flow", cm, "x", "a")
        for key in lab.create(drain):
            lab.run(key)
        assert lab.client.describe_flow("flow").status == ("COMPLETED" if completes else "RUNNING")
        assert ("More-1" in steps(run_id)) is not completes
        if not completes:
            assert lab.bell.names() == ["More-1"]
            assert step(run_id, "Drain-1", "output") is None

    def test_what_the_step_itself_publishes_counts_and_what_it_deletes_does_not(self, lab: Lab) -> None:
        def empty(context: Context) -> None:
            for each in ch.pending(context):
                ch.delete_message(context, each.id)

        drain = self.drain(lab, ch, before=empty)
        lab.start()
        lab.client.publish("flow", ch, 1, 2)
        for key in lab.create(drain):
            lab.run(key)
        assert lab.client.describe_flow("flow").status == "COMPLETED"

    def test_what_the_step_itself_publishes_elsewhere_does_not_count(self, lab: Lab) -> None:
        def before(context: Context) -> None:
            anything.publish(context, 1)
            cm.publish(context, "y", "of y")

        drain = self.drain(lab, ch, cm.load("x"), before=before)
        lab.start()
        lab.run(lab.create(drain)[0])
        assert lab.client.wait_for_flow("flow", 0).single_output(str) == "drained"

    def test_what_the_step_itself_publishes_keeps_the_run_open_though_a_waiter_took_it(self, lab: Lab) -> None:
        waiter = WaitingLabStep("W", lambda c, i: dead_end(), lambda c, i: Wait.until(ch.for_one()))
        drain = self.drain(lab, ch, before=lambda c: ch.publish(c, 1), more=(waiter,))
        run_id = lab.start()
        for key in lab.create(waiter, drain):
            lab.run(key)
        assert steps(run_id) == {"Drain-1": "COMPLETED", "More-1": "QUEUED", "W-1": "QUEUED"}

    def test_no_message_slips_in_between_the_look_and_the_completion(self, lab: Lab) -> None:
        """Either the message comes first and the run goes on, or the publisher finds it closed."""
        drain = self.drain(lab, ch)
        run_id = lab.start()
        (key,) = lab.create(drain)
        with transaction.atomic():
            lab.client.publish("flow", ch, 1)
            running = in_thread(lab.run, key)
            wait_until_blocked("dexflows_settle")
        result(running)
        assert steps(run_id) == {"Drain-1": "COMPLETED", "More-1": "QUEUED"}
        assert messages(run_id) == [1]

    def test_a_channel_of_another_flow_fails_the_step(self, lab: Lab) -> None:
        drain = self.drain(lab, Channel("ch", int))
        run_id = lab.start()
        for key in lab.create(drain):
            lab.run(key)
        assert "not in the persistence schema" in step(run_id, "Drain-1", "failure ->> 'detail'")


def test_messages_of_several_publishers_keep_each_ones_order_and_none_comes_twice(lab: Lab) -> None:
    """FLW-01 in small: four senders, one Flow that takes one message a Step."""
    taken: list[int] = []

    def execute(context: Context, input: str) -> Any:
        taken.extend(ch.results(context))
        return graceful_complete(len(taken)) if len(taken) == 40 else go_to(waiter, "")

    waiter = WaitingLabStep("W", execute, lambda c, i: Wait.until(ch.for_one()))
    lab.define(waiter)
    lab.start()
    lab.run_all()

    def publish(sender: int) -> None:
        for number in range(10):
            lab.client.publish("flow", ch, sender * 100 + number)

    senders = [in_thread(publish, sender) for sender in range(4)]
    for sender in senders:
        result(sender)
    lab.run_all()
    assert sorted(taken) == [sender * 100 + number for sender in range(4) for number in range(10)]
    for sender in range(4):
        own = [each for each in taken if each // 100 == sender]
        assert own == sorted(own)
    assert lab.client.wait_for_flow("flow", 0).single_output(int) == 40


def test_an_undeclared_channel_is_refused_in_a_handler(lab: Lab) -> None:
    lab.define()
    lab.start()
    lab.flow.on_call = lambda context: Channel("ch", int).publish(context, 1)
    with pytest.raises(WorkerInvocationError, match="UndeclaredAttributeError"):
        lab.client.invoke_rpc(lab.flow.call, "flow")


def test_an_rpc_may_publish_and_start_steps_that_take_it(lab: Lab) -> None:
    waiter = WaitingLabStep("W", returns_what_it_took, lambda c, i: Wait.until(ch.for_one()))
    lab.define(waiter, start=False)
    lab.start()

    def call(context: Context) -> RPCResult[str]:
        ch.publish(context, 1)
        return RPCResult("ok", next_steps=(StepMovement.of(waiter, ""),))

    lab.flow.on_call = call
    lab.client.invoke_rpc(lab.flow.call, "flow")
    lab.run_all()
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [1]


TUPLES_READ = """
SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::int FROM pg_stat_xact_user_tables
WHERE relname = 'dexflows_channel_message'
"""


def test_taking_one_message_reads_no_more_of_a_long_queue(lab: Lab) -> None:
    lab.define(WaitingLabStep("S", returns_what_it_took, lambda context, input: Wait.until(ch.for_one())))
    lab.start()
    lab.client.publish("flow", ch, *range(300))
    with transaction.atomic():
        rows("SET LOCAL enable_seqscan = off")  # so small a table may as well be read from end to end
        before = value(TUPLES_READ)
        lab.run_all()
        read = value(TUPLES_READ) - before
    assert lab.client.wait_for_flow("flow", 0).single_output(list[int]) == [0]
    assert read < 10
