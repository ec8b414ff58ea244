"""Running Step executions: claim, load, call, settle, and on in place to the one next Step.

    QUEUED ──claim──► RUNNING ──call──► outcome ──settle──► what the outcome says
       ▲                 │ the process dies                     │ one next Step, same queue, no locks
       └── rescue ◄──────┘                                      └──► RUNNING (claimed in the same commit)

Each arrow is one transaction. A crash before `claim` commits leaves a queued row, between `claim` and `settle` a
lease that ends, after `settle` the next Steps, queued or claimed. A claim that nobody runs (the process died between
a commit and its answer) is one more lease that ends.
"""

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from django.db import DatabaseError, InterfaceError, OperationalError, connections, transaction

from dexflows.conf import conf
from dexflows.engine import claims, enclosed, handlers, transitions
from dexflows.engine.claims import Claim
from dexflows.engine.doorbell import ring_after_commit
from dexflows.engine.failures import instead_of_failing
from dexflows.engine.keys import StepKey
from dexflows.engine.leases import Holding, Worker
from dexflows.engine.outcomes import (
    GoneOn,
    Movement,
    Outcome,
    Raised,
    Waits,
    WaitSkipped,
    is_message_gone,
    raw,
    transition,
)
from dexflows.engine.transitions import Settlement
from dexflows.states import StepDurability, StepMethod, StepState

logger = logging.getLogger(__name__)

SETTLE_PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Seconds before each try to settle over a broken connection; after the last one, the lease ends and rescue follows."""
_NOT_CURRENT = Raised(
    error_type="AttemptNotCurrent",
    detail="the attempt was no longer the current one at its end; did its handler stop its own run or cancel itself?",
    retryable=False,
)
ATOMIC_TRIES = 5
"""How often an `execute_atomic` handler is run anew after a deadlock or serialization failure of its transaction."""


@dataclass
class RunOn:
    """How much longer this worker may run on in place."""

    worker: Worker
    steps: int = field(default_factory=lambda: conf().run_on_steps)
    until: float = field(default_factory=lambda: time.monotonic() + conf().run_on_seconds)

    @property
    def allowed(self) -> bool:
        return self.steps > 0 and time.monotonic() < self.until and not self.worker.draining


def run(key: StepKey, worker: Worker) -> bool:
    """Look at a Step execution: run it, and those that follow it in place. True when an attempt was run."""
    if worker.draining:
        ring_after_commit([key])
        return False
    claim = _first_claim(key, worker)
    ran = claim is not None
    run_on = RunOn(worker)
    while claim is not None:
        run_on.steps -= 1
        claim = _attempt(claim, run_on)
    return ran


def _first_claim(key: StepKey, worker: Worker) -> Claim | None:
    """Claim, once more over a new connection if the one at hand turns out to be broken.

    It may also be one that answers and refuses all work: of a server that is no primary any more, or as a handler
    left it.
    """
    try:
        return claims.claim(key, worker)
    except (DatabaseError, InterfaceError):
        connections[conf().database].close()
    try:
        return claims.claim(key, worker)
    except (DatabaseError, InterfaceError) as error:
        logger.warning("could not claim %s of run %s now: %s", key.step_execution_id, key.run_id, error)
        connections[conf().database].close()
        return None


def _attempt(claim: Claim, run_on: RunOn) -> Claim | None:
    with run_on.worker.holding(claim.key, claim.token, claim.method_plan.allowed_seconds) as holding:
        started = time.monotonic()
        settlement = None
        if lost := _lost_before(claim):
            outcome: Outcome = lost
        elif claim.atomic:
            outcome, settlement = _call_atomic(claim, run_on, started, holding)
        else:
            outcome = enclosed.call(claim, holding)
        if settlement is None:
            _leave_connection_clean()
            settlement = _settle_patiently(claim, outcome, run_on, started)
    return _follow(claim, outcome, settlement, run_on) if settlement is not None else None


def _lost_before(claim: Claim) -> Raised | None:
    """The failure of an attempt that may not start, as when earlier ones that died with their worker were the last."""
    if claim.fault is not None:
        return claim.fault
    maximum = claim.method_plan.options.retry.maximum_attempts
    if maximum and claim.attempt > maximum:
        lost = {"error_type": "WorkerLost", "detail": "the last attempt died with its worker"}
        last = msgspec.json.decode(claim.failure) if claim.failure else lost
        return Raised(error_type=last["error_type"], detail=last["detail"], retryable=False)
    return None


def _call_atomic(claim: Claim, run_on: RunOn, started: float, holding: Holding) -> tuple[Outcome, Settlement | None]:
    """Run the handler inside the transaction that commits its result; no settlement means: rolled back."""
    for tries in range(1, ATOMIC_TRIES + 1):
        try:
            with transaction.atomic(using=conf().database):
                outcome = handlers.call(claim, holding)
                if not isinstance(outcome, Raised):
                    if claim.enclosed:  # else the commit checks what is deferred to it
                        connections[conf().database].check_constraints()
                    settlement = _settle(claim, outcome, run_on, started)
                    if settlement.landed:
                        return outcome, settlement
                    outcome = _NOT_CURRENT
                transaction.set_rollback(True, using=conf().database)
        except DatabaseError as error:
            outcome = handlers.failed(claim, error)
        if not (isinstance(outcome, Raised) and outcome.restartable and tries < ATOMIC_TRIES):
            break
    return outcome, None


def _settle_patiently(claim: Claim, outcome: Outcome, run_on: RunOn, started: float) -> Settlement | None:
    for pause in SETTLE_PAUSES:
        if pause:
            time.sleep(pause)
        try:
            with enclosed.settling():
                return _settle(claim, outcome, run_on, started)
        except (OperationalError, InterfaceError) as error:
            logger.warning("settling %s of run %s: %s", claim.key.step_execution_id, claim.key.run_id, error)
            connections[conf().database].close_if_unusable_or_obsolete()
        except DatabaseError as error:
            outcome = replace(Raised.by(error), retryable=is_message_gone(error))
    logger.error("gave up settling %s of run %s; its lease will end", claim.key.step_execution_id, claim.key.run_id)
    return None


def _settle(claim: Claim, outcome: Outcome, run_on: RunOn, started: float) -> Settlement:
    elapsed = claim.elapsed + time.monotonic() - started
    payload = transition(
        outcome,
        attempt=claim.attempt,
        elapsed=elapsed,
        retry=claim.method_plan.options.retry,
        instead=instead_of_failing(claim.flow, claim.step, claim.plan, claim.method)
        if isinstance(outcome, Raised)
        else None,
    )
    if claim.locked:
        payload["release"] = True
    durabilities = {claim.method_plan.options.durability}
    if run_on.allowed and (claimed := _next(claim, outcome, run_on)) is not None:
        durabilities.add(claimed.pop("durability"))
        payload["run_on"] = claimed
        if isinstance(outcome, WaitSkipped):
            payload["state"] = StepState.RUNNING
    if durability := _of_all(durabilities):
        payload["durability"] = durability
    settlement = transitions.settle(claim.key, claim.token, payload)
    if payload["state"] is StepState.BACKOFF:
        run_on.worker.due_in(payload["delay"])
    elif isinstance(outcome, Waits) and outcome.next_timer is not None and settlement.waited is None:
        run_on.worker.due_in(outcome.next_timer)
    return settlement


def _of_all(durabilities: set[StepDurability | None]) -> StepDurability | None:
    """The durability of a commit that serves several methods; None is the run's, which may be either."""
    if StepDurability.SYNC in durabilities:
        return StepDurability.SYNC
    return StepDurability.ASYNC if durabilities == {StepDurability.ASYNC} else None


def _next(claim: Claim, outcome: Outcome, run_on: RunOn) -> dict[str, Any] | None:
    """What to claim in the commit that settles: the one next handler, if it is for this queue and needs no locks."""
    if isinstance(outcome, WaitSkipped | Waits):
        plan = claim.plan.methods[StepMethod.EXECUTE]
        locked, timeout, load = bool(plan.locks.exclusive), plan.allowed_seconds, plan.load.json
        durability = plan.options.durability
    elif (movement := _only_movement(claim, outcome)) is not None:
        locked, timeout, load = movement.locked, movement.timeout, movement.load
        durability = movement.durability
    else:
        return None
    if locked:
        return None
    return {
        "worker": run_on.worker.name,
        "lease": conf().lease_seconds,
        "timeout": timeout,
        "load": raw(load),
        "durability": durability,
    }


def _only_movement(claim: Claim, outcome: Outcome) -> Movement | None:
    if isinstance(outcome, GoneOn) and len(outcome.movements) == 1 and outcome.movements[0].queue == claim.key.queue:
        return outcome.movements[0]
    return None


def _follow(claim: Claim, outcome: Outcome, settlement: Settlement, run_on: RunOn) -> Claim | None:
    """Ring for what became ready, and take the next handler of this run if it is this worker's."""
    if not settlement.landed:
        logger.warning(
            "attempt %d of %s in run %s is not the current one any more: its result was dropped",
            claim.attempt,
            claim.key.step_execution_id,
            claim.key.run_id,
        )
        return None
    waits_no_more = isinstance(outcome, WaitSkipped) or settlement.waited is not None
    rings = settlement.rings + ([claim.key] if waits_no_more else [])
    if settlement.next_token is not None:
        ring_after_commit(settlement.rings)
        movement = _only_movement(claim, outcome)
        local_writes = outcome.effects.local_writes if isinstance(outcome, WaitSkipped | Waits) else {}
        return claims.next_claim(claim, settlement, movement, local_writes)
    follows = run_on.allowed and (waits_no_more or _only_movement(claim, outcome))
    own = rings.pop() if follows and rings and rings[-1].queue == claim.key.queue else None
    ring_after_commit(rings)
    return claims.claim(own, run_on.worker) if own else None


def _leave_connection_clean() -> None:
    """A handler that was interrupted, or left a transaction open, leaves a connection on which nothing would commit."""
    connection = connections[conf().database]
    if connection.connection is not None and not connection.in_atomic_block:
        session = connection.connection
        if session.closed or session.pgconn.transaction_status != 0 or not connection.autocommit:
            connection.close()
