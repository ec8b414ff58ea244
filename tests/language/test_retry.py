"""How long a failed attempt waits, and when it is the last."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexflows import RetryAfter, RetryPolicy, retry_after


def test_the_cap_grows_to_the_maximum() -> None:
    policy = RetryPolicy()
    assert [policy.interval_cap(attempt) for attempt in (1, 2, 3, 7, 8)] == [1, 2, 4, 64, 100]
    assert policy.interval_cap(10**6) == policy.interval_cap(10**18) == 100
    assert RetryPolicy(backoff_coefficient=10).interval_cap(400) == 100
    assert RetryPolicy(backoff_coefficient=1).interval_cap(10**6) == 1
    assert RetryPolicy(initial_interval=0).interval_cap(10**6) == 0
    assert RetryPolicy(initial_interval=500).interval_cap(1) == 100
    assert RetryPolicy(initial_interval=2.3e-308).interval_cap(1026) == 100  # 2 ** 1025 is no float


@settings(max_examples=100, deadline=None)
@given(
    st.floats(0, 1e6),
    st.floats(1, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 10**18),
    st.integers(),
)
def test_the_wait_is_within_the_cap_whatever_the_policy(
    initial: float, coefficient: float, maximum: float, attempt: int, seed: int
) -> None:
    policy = RetryPolicy(initial_interval=initial, backoff_coefficient=coefficient, maximum_interval=maximum)
    cap = policy.interval_cap(attempt)
    assert 0 <= cap <= maximum
    assert cap <= policy.interval_cap(attempt + 1)
    assert 0 <= policy.next_interval(attempt, random.Random(seed)) <= cap


def test_waits_are_spread_over_the_whole_interval() -> None:
    drawn = [RetryPolicy(initial_interval=10).next_interval(1, random.Random(seed)) for seed in range(2000)]
    assert min(drawn) < 0.5
    assert max(drawn) > 9.5
    assert 0 <= RetryPolicy().next_interval(3) <= 4


def test_attempts_and_duration_each_end_the_tries() -> None:
    policy = RetryPolicy(maximum_attempts=3, total_duration=60)
    assert not policy.is_exhausted(2, 59)
    assert policy.is_exhausted(3, 0)
    assert policy.is_exhausted(1, 60)
    endless = RetryPolicy(total_duration=0)
    assert not endless.is_exhausted(10**6, 10**9)


def test_durations_may_be_timedeltas_and_the_policy_survives_json() -> None:
    policy = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=7)
    assert policy.initial_interval == 0.5
    assert RetryPolicy.from_json(policy.to_json()) == policy
    assert RetryPolicy.from_json({}) == RetryPolicy()


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_interval": -1},
        {"initial_interval": float("nan")},
        {"maximum_interval": float("inf")},
        {"total_duration": "1h"},
        {"total_duration": True},
        {"backoff_coefficient": 0.5},
        {"maximum_attempts": -1},
        {"maximum_attempts": 1.5},
        {"maximum_attempts": True},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


def test_a_handler_sets_the_next_wait_and_keeps_the_cause() -> None:
    cause = OSError("busy")
    raised = retry_after(timedelta(seconds=5), cause)
    assert isinstance(raised, RetryAfter)
    assert (raised.seconds, raised.cause, raised.__cause__) == (5.0, cause, cause)
    with pytest.raises(ValueError, match="retry_after"):
        retry_after(-1)
