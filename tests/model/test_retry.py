"""When to try again."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.model.errors import InvalidOptions
from tenure.model.retry import RetryPolicy

CALLBACKS = RetryPolicy(attempts=8, delay=5, backoff=4, max_delay=3600, jitter=0.5)


def test_waits_grow_up_to_the_cap_and_then_it_gives_up() -> None:
    waits = [CALLBACKS.wait_after(n) for n in range(1, 10)]
    assert waits == [5, 20, 80, 320, 1280, 3600, 3600, None, None]


def test_one_attempt_means_no_retry() -> None:
    assert RetryPolicy().wait_after(1) is None


@pytest.mark.parametrize(("luck", "wait"), [(0.0, 20), (0.5, 15), (0.999, 10.01)])
def test_jitter_only_takes_away(luck: float, wait: float) -> None:
    assert CALLBACKS.wait_after(2, luck=luck) == pytest.approx(wait)


@pytest.mark.parametrize(
    ("asked", "wait"), [(0, 20), (10, 20), (30, 30), (3600, 3600), (1e9, 3600), (-5, 20)]
)
def test_what_the_other_side_asked_for_counts_within_the_cap(asked: float, wait: float) -> None:
    assert CALLBACKS.wait_after(2, at_least=asked) == wait


def test_jitter_does_not_undercut_what_the_other_side_asked_for() -> None:
    assert CALLBACKS.wait_after(2, luck=0.9, at_least=19) == 19


@pytest.mark.parametrize("failed", [65, 66, 500, 10_000, 10**9])
def test_huge_attempt_numbers_do_not_overflow(failed: int) -> None:
    policy = RetryPolicy(attempts=10**10, delay=5, backoff=4, max_delay=3600)
    assert policy.wait_after(failed) == 3600
    assert RetryPolicy(attempts=10**10, delay=0).wait_after(failed) == 0


def test_a_huge_backoff_does_not_overflow() -> None:
    policy = RetryPolicy(attempts=1000, delay=5, backoff=1e6, max_delay=3600)
    assert policy.wait_after(100) == 3600


def test_a_gentle_backoff_reaches_its_cap_too() -> None:
    policy = RetryPolicy(attempts=10_000, delay=1, backoff=1.1, max_delay=3600)
    assert policy.wait_after(1000) == 3600


@pytest.mark.parametrize(
    "fields",
    [
        {"attempts": 0},
        {"attempts": -1},
        {"delay": -0.1},
        {"max_delay": -1},
        {"backoff": 0.5},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"attempts": 2.5},
        {"attempts": True},
        {"attempts": nan},
        {"attempts": "8"},
        *({name: value} for name in ("delay", "backoff", "max_delay") for value in (nan, inf)),
        {"jitter": nan},
        {"delay": "5s"},
        {"backoff": None},
    ],
)
def test_impossible_policies_are_refused(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(InvalidOptions, match=f"^{name} must be "):
        RetryPolicy(**fields)


@settings(deadline=None)
@given(
    st.integers(1, 100),
    st.floats(0, 1e4),
    st.floats(1, 1e4),
    st.floats(0, 1e5),
    st.floats(0, 1),
    st.integers(1, 200),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1e9),
)
def test_a_wait_is_always_between_zero_and_the_cap(
    attempts: int,
    delay: float,
    backoff: float,
    max_delay: float,
    jitter: float,
    failed: int,
    luck: float,
    at_least: float,
) -> None:
    policy = RetryPolicy(
        attempts=attempts, delay=delay, backoff=backoff, max_delay=max_delay, jitter=jitter
    )
    wait = policy.wait_after(failed, luck=luck, at_least=at_least)
    if failed >= attempts:
        assert wait is None
    else:
        assert wait is not None
        assert min(at_least, max_delay) <= wait <= max_delay
