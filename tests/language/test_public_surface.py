"""The public names, the error tree and the independence from Django settings are kept on purpose."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import dexflows
from dexflows import errors, states

SPEC_NAMES = [
    "Attribute",
    "AttributeIndex",
    "AttributeMap",
    "Context",
    "Flow",
    "IndexType",
    "PersistenceSchema",
    "RPCResult",
    "Step",
    "StepDecision",
    "StepList",
    "StepOptions",
    "Wait",
    "graceful_complete",
    "register",
    "rpc",
    "StepMovement",
    "go_to",
    "go_to_many",
    "force_complete",
    "force_fail",
    "dead_end",
    "RetryPolicy",
    "retry_after",
    "FlowConfig",
    "StartFlowOptions",
    "StopFlowOptions",
    "RPCInvokeOptions",
    "IdReusePolicy",
    "StopType",
    "Client",
    "AsyncClient",
    "RPCLockConflict",
    "RpcLockConflictError",
    "Stream",
]
LAZY = {"Client", "AsyncClient"}


def test_all_is_sorted_complete_and_names_only_what_exists() -> None:
    names = set(dexflows.__all__)
    assert len(names) == len(dexflows.__all__)
    assert names >= set(SPEC_NAMES) | set(errors.__all__)
    for name in names - LAZY:
        assert getattr(dexflows, name) is not None
    public = {
        name for name, value in vars(dexflows).items() if not name.startswith("_") and hasattr(value, "__module__")
    }
    assert {name for name in public if getattr(dexflows, name).__module__.startswith("dexflows")} <= names


def test_the_language_needs_no_django_and_no_settings() -> None:
    code = "import sys, dexflows; assert 'django' not in sys.modules; dexflows.register; print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "fine\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dexflows.Nothing  # noqa: B018
    assert set(dir(dexflows)) >= LAZY


EXAMPLES = [
    errors.ValueMappingError("$.a", "no"),
    errors.ValueTooLargeError("key", 5, 4),
    errors.FlowAlreadyStartedError("flow", "run"),
    errors.RpcLockConflictError(("a", "b/c")),
    errors.WorkerInvocationError("KeyError", "'x'"),
    errors.InvalidSearchQueryError("unknown key", 7),
    errors.FlowNotFoundError("no Flow x"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda each: type(each).__name__)
def test_an_error_survives_pickling_with_its_parts(error: errors.DexflowsError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - what Celery's result backends do
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_every_error_has_one_root_and_a_sentence() -> None:
    for name in errors.__all__:
        declared = getattr(errors, name)
        assert issubclass(declared, errors.DexflowsError)
        assert declared.__doc__
    assert errors.RPCLockConflict is errors.RpcLockConflictError


def test_only_running_is_open_for_a_run_and_three_states_close_a_step() -> None:
    assert [each for each in states.RunStatus if not each.is_closed] == [states.RunStatus.RUNNING]
    assert [each.value for each in states.StepState if not each.is_open] == ["COMPLETED", "FAILED", "CANCELED"]
