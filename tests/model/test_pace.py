"""A store that is late was away, until it is known to be always late."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tenure.model.leases import LATE, Pace
from tenure.testing.factories import claim_request

LEASE = 6 * LATE
SLOW = 2 * LATE
STILL_SLOW = SLOW + LATE
OUTAGE = 10 * SLOW


def takes(pace: Pace, asked_at: float, now: float) -> bool:
    return pace.in_time(claim_request(seconds=LEASE), asked_at, now).expired


def one_by_one(pace: Pace, *waited: float, start: float = 0.0) -> list[bool]:
    """Each is asked when the one before has been answered."""
    moments = [start + sum(waited[:n]) for n in range(len(waited) + 1)]
    return [takes(pace, asked_at, now) for asked_at, now in pairwise(moments)]


def slowly(pace: Pace, times: int, start: float = 0.0) -> list[bool]:
    return one_by_one(pace, *[SLOW] * times, start=start)


def known_to_be_slow() -> Pace:
    """For long; whatever is asked at 100 comes after that."""
    pace = Pace()
    assert slowly(pace, 20)[-1]
    return pace


def test_one_that_is_late_for_once_takes_nothing() -> None:
    pace = Pace()
    assert takes(pace, 0.0, LATE)
    assert not takes(pace, 10.0, 10.0 + SLOW)
    assert takes(pace, 20.0, 20.0 + LATE)


def test_one_that_is_always_late_does_after_a_lease() -> None:
    assert slowly(Pace(), 12) == [False] * 3 + [True] * 9


def test_not_before_it_was_so_for_a_lease() -> None:
    assert one_by_one(Pace(), *[LATE + 0.1] * 8) == [False] * 6 + [True] * 2


def test_nor_before_it_was_so_several_times() -> None:
    assert one_by_one(Pace(), *[LEASE] * 5) == [False] * 3 + [True] * 2


def test_those_that_waited_at_the_same_time_count_once() -> None:
    pace = Pace()
    assert not any(takes(pace, 0.0, 3 * LEASE + n) for n in range(10))


def test_also_if_others_had_waited_before_them() -> None:
    pace = Pace()
    assert not takes(pace, 0.0, SLOW)
    assert not any(takes(pace, SLOW, 2 * SLOW) for _ in range(10))
    assert not takes(pace, LEASE, LEASE + SLOW)
    assert takes(pace, LEASE + SLOW, LEASE + 2 * SLOW)


def test_of_claimers_that_overlap_one_after_another_counts() -> None:
    """There is always one that was asked before another was answered."""
    pace = Pace()
    answers = [takes(pace, n * SLOW / 2, n * SLOW / 2 + SLOW) for n in range(20)]
    assert answers == [False] * 6 + [True] * 14


def test_who_was_quick_again_is_slow_anew() -> None:
    pace = known_to_be_slow()
    assert takes(pace, 100.0, 100.0)
    assert slowly(pace, 2, start=200.0) == [False, False]


def test_slow_one_may_be_a_little_slower() -> None:
    pace = known_to_be_slow()
    assert takes(pace, 100.0, 100.0 + STILL_SLOW)
    assert slowly(pace, 2, start=200.0) == [True, True]


def test_slow_one_that_is_later_than_usual_was_away() -> None:
    pace = known_to_be_slow()
    assert not takes(pace, 100.0, 100.0 + STILL_SLOW + 0.1)
    assert slowly(pace, 6, start=110.0) == [False] * 2 + [True] * 4


def test_so_was_it_for_all_that_waited_with_it() -> None:
    """Also for the one that was asked before its last answer, and comes first."""
    pace = known_to_be_slow()
    back = 100.0 + OUTAGE
    asked_at = [39.0, *range(100, int(back - SLOW))]
    assert not any(takes(pace, asked, back + n / 100) for n, asked in enumerate(asked_at))
    assert slowly(pace, 3, start=back + 3) == [False, False, True]


def test_outage_is_no_proof_that_it_is_slow() -> None:
    """Though late in a row, and for longer than a lease by then."""
    pace = Pace()
    assert slowly(pace, 3) == [False] * 3
    assert not takes(pace, 100.0, 100.0 + OUTAGE)
    assert slowly(pace, 4, start=200.0) == [False] * 2 + [True] * 2


def test_outage_that_was_before_it_was_slow_is_forgotten() -> None:
    pace = Pace()
    one_by_one(pace, OUTAGE, *[SLOW] * 8)
    assert not takes(pace, 100.0, 100.0 + OUTAGE)


@pytest.mark.parametrize("quicker", range(1, 7))
def test_one_that_is_often_slower_than_usual_still_takes(quicker: int) -> None:
    """Or it would begin anew each time, and keep the runs of the dead for ever."""
    answers = one_by_one(Pace(), *[LATE * 5, *[LATE + 0.1] * quicker] * 20)
    assert answers[0] is False
    assert all(answers[8:])
