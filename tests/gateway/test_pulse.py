"""How long a request may have lain unread, by a clock in the hands of the test."""

from __future__ import annotations

import pytest

from tenure.gateway.pulse import Pulse
from tenure.model.leasing import LATE


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pulse(time: Time) -> Pulse:
    return Pulse(time)


def test_who_goes_on_keeps_nobody_waiting(time: Time, pulse: Pulse) -> None:
    for _ in range(10):
        time.now += LATE
        pulse.beat()
    assert pulse.waited() == 0


@pytest.mark.parametrize("beats_first", [True, False])
def test_what_is_answered_after_a_standstill_may_have_waited_for_all_of_it(
    time: Time, pulse: Pulse, beats_first: bool
) -> None:
    """Whether the request is read first or the pulse goes on first is chance."""
    time.now += 30
    if beats_first:
        pulse.beat()
    assert pulse.waited() == 30
    time.now += LATE / 2
    assert pulse.waited() == 30


def test_a_moment_later_nothing_is_left_of_it(time: Time, pulse: Pulse) -> None:
    time.now += 30
    for _ in range(3):
        pulse.beat()
        time.now += LATE / 2
    pulse.beat()
    assert pulse.waited() == 0
