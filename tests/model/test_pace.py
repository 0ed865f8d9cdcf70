"""A store that is late was away, until it is known to be always late."""

from __future__ import annotations

from tenure.model.leasing import LATE
from tenure.model.pace import Pace
from tenure.testing.factories import claim_request

LEASE = 6 * LATE
SLOW = 2 * LATE


def takes(pace: Pace, asked_at: float, now: float) -> bool:
    return pace.in_time(claim_request(seconds=LEASE), asked_at, now).expired


def slowly(pace: Pace, times: int, start: float = 0.0) -> list[bool]:
    """One after another."""
    return [takes(pace, start + n * SLOW, start + (n + 1) * SLOW) for n in range(times)]


def test_one_that_is_late_for_once_takes_nothing() -> None:
    pace = Pace()
    assert takes(pace, 0.0, LATE)
    assert not takes(pace, 10.0, 10.0 + SLOW)
    assert takes(pace, 20.0, 20.0 + LATE)


def test_one_that_is_always_late_does_after_a_lease() -> None:
    assert slowly(Pace(), 6) == [False, False, False, True, True, True]


def test_not_before_it_was_so_for_a_lease() -> None:
    pace, little = Pace(), LATE + 0.1
    late = [takes(pace, n * little, (n + 1) * little) for n in range(8)]
    assert late == [False] * 6 + [True] * 2


def test_those_that_waited_at_the_same_time_count_once() -> None:
    pace = Pace()
    assert not any(takes(pace, 0.0, 3 * LEASE + n) for n in range(10))


def test_who_was_quick_again_is_slow_anew() -> None:
    pace = Pace()
    slowly(pace, 6)
    assert takes(pace, 100.0, 100.0)
    assert slowly(pace, 2, start=200.0) == [False, False]
