"""Beginning an attempt.

A claim is one guarded UPDATE that counts the attempt, sets a lease and makes a new token, all committed before user
code starts; so a process that dies has used an attempt, and whoever settles without the current token changes
nothing. No row back means: do not run. A claim that declares locks takes the whole set or becomes a waiter:

    waiter commits its row ── tries once more ── RPC still holds ──► the RPC looks for waiters after its commit
                                              └─ RPC has ended  ──► the second try takes the locks

Step holders need no second try: they release under the run's row lock, which the claim held when it became a waiter.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import connections

from dexflows.conf import conf
from dexflows.context import NOT_WAITED, RecoveryError
from dexflows.engine import transitions
from dexflows.engine.keys import MethodPlan, StepKey, StepPlan, plan_of
from dexflows.engine.leases import Worker
from dexflows.engine.outcomes import Movement, Raised, clean, raw
from dexflows.errors import InvalidStepResultError
from dexflows.options import StepOptions
from dexflows.registry import FlowDefinition, StepDefinition, registry
from dexflows.states import StepMethod
from dexflows.wait import Waited

logger = logging.getLogger(__name__)


_more = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = b"null"


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An attempt that this process may run: the definitions, the state it reads and the token to settle with."""

    key: StepKey
    flow: FlowDefinition
    step: StepDefinition
    plan: StepPlan
    flow_id: str
    run_queue: str
    method: StepMethod
    attempt: int
    token: UUID
    first_attempt_at: datetime
    elapsed: float
    from_step: str | None
    input: str
    locals: str | None
    failure: str | None
    locked: bool
    attributes: str
    waited: Waited = NOT_WAITED
    recovery: RecoveryError | None = None
    heartbeat: str | None = None
    enclosed: bool = False
    """Whether it was made inside a transaction of the caller's, which nobody else sees."""
    fault: Raised | None = None
    """Why the attempt fails before its handler is called."""

    @property
    def method_plan(self) -> MethodPlan:
        return self.plan.methods[self.method]

    @property
    def atomic(self) -> bool:
        return self.method is StepMethod.EXECUTE and self.plan.step_options.execute_atomic


def claim(key: StepKey, worker: Worker) -> Claim | None:
    """Claim a Step execution for this worker; None when there is nothing to run here."""
    flow = registry.get(key.flow_type)
    step = flow.steps.get(key.step_type) if flow else None
    if flow is None or step is None:
        _park(key, flow)
        return None
    row = transitions.claim(key, worker.name, plan_of(flow, step).json)
    if row.outcome == "rpc":
        row = transitions.claim(key, worker.name, plan_of(flow, step).json)
    if row.outcome == "later" and row.elapsed is not None:
        worker.due_in(row.elapsed)
    if row.outcome != "claimed":
        return None
    more = {key: part for key, part in _more.decode(row.more).items() if bytes(part) != _NULL} if row.more else {}
    plan, fault = effective_plan(flow, step, row.options)
    return Claim(
        key=key,
        flow=flow,
        step=step,
        plan=plan,
        fault=fault,
        flow_id=row.flow_id,
        run_queue=row.run_queue,
        method=StepMethod(row.method),
        attempt=row.attempt,
        token=row.token,
        first_attempt_at=row.first_attempt_at,
        elapsed=row.elapsed,
        from_step=row.from_step,
        input=row.input,
        locals=row.locals,
        failure=row.failure,
        locked=row.locked,
        attributes=row.attributes,
        waited=Waited.from_json(more["waited"]) if "waited" in more else NOT_WAITED,
        recovery=RecoveryError(**msgspec.json.decode(more["recovery"])) if "recovery" in more else None,
        heartbeat=bytes(more["heartbeat"]).decode() if "heartbeat" in more else None,
        enclosed=connections[conf().database].in_atomic_block,
    )


def next_claim(
    claim: Claim, settlement: transitions.Settlement, movement: Movement | None, local_writes: Mapping[str, str]
) -> Claim | None:
    """The claim that a settlement made for the same worker; without a movement, of the same Step's `execute`."""
    if settlement.next_token is None or settlement.attributes is None:
        return None
    flow, number = claim.flow, settlement.next_number
    if movement is None or number is None:
        key, step, plan, method = claim.key, claim.step, claim.plan, StepMethod.EXECUTE
    else:
        key = StepKey(claim.key.run_id, flow.flow_type, movement.step_type, number, movement.queue)
        step, method = flow.steps[movement.step_type], movement.method
        plan = plan_of(flow, step) if movement.options is None else _plan_with(flow, step, movement.options)
    return Claim(
        key=key,
        flow=flow,
        step=step,
        plan=plan,
        flow_id=claim.flow_id,
        run_queue=claim.run_queue,
        method=method,
        attempt=1,
        token=settlement.next_token,
        first_attempt_at=settlement.at,
        elapsed=0.0,
        from_step=claim.from_step if movement is None else claim.key.step_execution_id,
        input=claim.input if movement is None else movement.input,
        locals=_merged(claim.locals, local_writes) if movement is None else None,
        failure=None,
        locked=False,
        attributes=settlement.attributes,
        waited=Waited.from_json(settlement.waited) if settlement.waited else NOT_WAITED,
        recovery=claim.recovery if movement is None else None,
        enclosed=claim.enclosed,
    )


def _merged(stored: str | None, local_writes: Mapping[str, str]) -> str | None:
    if not local_writes:
        return stored
    known = msgspec.json.decode(stored, type=dict[str, msgspec.Raw]) if stored else {}
    return msgspec.json.encode(known | {key: raw(value) for key, value in local_writes.items()}).decode()


def effective_plan(flow: FlowDefinition, step: StepDefinition, options: str | None) -> tuple[StepPlan, Raised | None]:
    """The plan of an execution: of its stored options, else the declared one; and why the stored ones do not fit."""
    declared = plan_of(flow, step)
    if options is None:
        return declared, None
    try:
        return _plan_with(flow, step, msgspec.json.decode(options)), None
    except (KeyError, TypeError, ValueError, InvalidStepResultError) as error:
        detail = f"the stored options of this Step execution do not fit the running code: {error!r}"
        return declared, Raised(error_type="StoredOptionsError", detail=clean(detail))


def _plan_with(flow: FlowDefinition, step: StepDefinition, stored: object) -> StepPlan:
    options = StepOptions.from_json(stored, {**flow.attributes, **flow.channels})  # type: ignore[arg-type]
    flow.recovery_step(step, options)
    return StepPlan.of(flow, options)


def _park(key: StepKey, flow: FlowDefinition | None) -> None:
    unknown = f"Step {key.step_type} of Flow {key.flow_type}" if flow else f"Flow {key.flow_type}"
    if transitions.park(key, f"{unknown} is not known to the running code"):
        logger.warning("parked %s of run %s: %s is not known here", key.step_execution_id, key.run_id, unknown)
