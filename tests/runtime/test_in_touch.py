"""Who was out of touch with the store leaves expired leases alone for one renew interval."""

from __future__ import annotations

import asyncio

import pytest

from tenure.runtime.in_touch import Contact, InTouch


class Time:
    now = 100.0


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Of this test's event loop; nothing here waits."""
    time = Time()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.now)
    return time


def in_touch(time: Time, renew_interval: float) -> InTouch:
    """For long enough."""
    touch = InTouch(Contact(renew_interval))
    touch.rests(time.now + 1000)
    assert later(touch, time, renew_interval)
    return touch


def later(touch: InTouch, time: Time, seconds: float) -> bool:
    """May it be judged then?"""
    time.now += seconds
    return touch.long_enough


def is_answered_after(touch: InTouch, time: Time, seconds: float) -> bool:
    """And may be judged by then."""
    sent_at = time.now
    time.now += seconds
    touch.answered(sent_at)
    return touch.long_enough


@pytest.mark.parametrize(
    ("renew_interval", "patience"), [(0.2, 1.0), (2.0, 1.0), (20.0, 10.0)], ids=str
)
async def test_an_answer_that_took_long_counts_as_none(
    time: Time, renew_interval: float, patience: float
) -> None:
    touch = in_touch(time, renew_interval)
    assert is_answered_after(touch, time, patience)
    assert not is_answered_after(touch, time, patience + 0.1)
    assert not later(touch, time, renew_interval - 0.05)
    assert later(touch, time, 0.1)


async def test_a_store_that_always_takes_long_is_in_touch_after_a_lease(time: Time) -> None:
    touch = in_touch(time, 2.0)
    answers = [is_answered_after(touch, time, 1.5) for _ in range(8)]
    assert answers == [False] * 5 + [True] * 3


async def test_who_was_frozen_is_not_in_touch(time: Time) -> None:
    touch = in_touch(time, 2.0)
    touch.rests(time.now + 1)
    assert later(touch, time, 1.9)
    assert not later(touch, time, 0.2)
    touch.rests(time.now + 1000)
    assert not later(touch, time, 1.9)
    assert later(touch, time, 0.2)
