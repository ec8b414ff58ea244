"""Notifications of a quarter of an hour go out as one mail.

The first one starts the Flow, the others are messages to it. When the mail is sent the Flow ends, unless more came
meanwhile: then it gathers again. No notification is lost, however they come.
"""

from contextlib import suppress
from datetime import timedelta

from django.core.mail import send_mail
from django.db import transaction

from dexflows import (
    Channel,
    Client,
    Context,
    Flow,
    FlowNotActiveOrNotFoundError,
    IdReusePolicy,
    PersistenceSchema,
    StartFlowOptions,
    Step,
    StepDecision,
    StepList,
    StepMovement,
    Timer,
    Wait,
    force_complete_if_channels_empty,
    register,
)

GATHER_FOR = timedelta(minutes=15)
ONE_AT_A_TIME = StartFlowOptions(id_reuse_policy=IdReusePolicy.ALLOW_IF_NOT_RUNNING, ignore_already_started=True)


def notify(address: str, text: str) -> None:
    """Let somebody know, by a mail within a quarter of an hour."""
    client, flow_id = Client(), f"digest-{address}"
    while True:
        with suppress(FlowNotActiveOrNotFoundError), transaction.atomic():
            client.start_flow(digest_flow, flow_id, address, ONE_AT_A_TIME)
            client.publish(flow_id, digest_flow.notifications, text)
            return
        # It ended between the two calls, so the next start makes another.


class SendDigest(Step[str]):
    """Takes all that has come by the end of the quarter, and sends it; the input is the address."""

    def wait_for(self, context: Context, input: str) -> Wait:
        return Wait.all_of(Timer.by_duration(GATHER_FOR), DigestFlow.notifications.at_least(1))

    def execute(self, context: Context, input: str) -> StepDecision:
        texts = DigestFlow.notifications.results(context)
        send_mail(f"{len(texts)} notifications", "\n".join(texts), None, [input])
        return force_complete_if_channels_empty(
            len(texts), StepMovement.of(SendDigest, input), DigestFlow.notifications
        )


class DigestFlow(Flow[str]):
    notifications = Channel("notifications", str)

    def get_steps(self) -> StepList[str]:
        return StepList.start_step(SendDigest())

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(self.notifications)


digest_flow = register(DigestFlow())
