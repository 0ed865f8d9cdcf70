"""Who was out of touch with the store leaves expired leases alone for one renew interval."""

from __future__ import annotations

import asyncio

import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.runtime.group_commit import InTouch, StoreContact


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
    touch = InTouch(StoreContact(renew_interval))
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


async def test_what_one_of_them_meets_all_have_met(time: Time) -> None:
    contact = StoreContact(2.0)
    claims, writes = InTouch(contact), InTouch(contact)
    claims.rests(time.now + 1000)
    assert later(claims, time, 2.0)
    writes.lost()
    assert not later(claims, time, 1.9)
    assert later(claims, time, 0.2)


async def test_how_long_a_store_always_takes_depends_on_what_it_is_asked(time: Time) -> None:
    """Quick answers to others do not make slow ones a sign that it was away."""
    contact = StoreContact(2.0)
    claims, writes = InTouch(contact), InTouch(contact)
    claims.rests(time.now + 1000)
    for _ in range(8):
        sent_at, time.now = time.now, time.now + 1.5
        claims.answered(sent_at)
        writes.answered(time.now)
    assert claims.long_enough


async def test_that_one_means_to_go_on_says_nothing_of_others(time: Time) -> None:
    """Who reconciles may take long over it, or ends while the others go on."""
    contact = StoreContact(2.0)
    claims, reconciles = InTouch(contact), InTouch(contact)
    claims.rests(time.now + 1000)
    reconciles.rests(time.now + 1)
    assert later(claims, time, 5.0)
    reconciles.rests(time.now + 1)
    assert claims.long_enough
    assert not reconciles.long_enough


class TestAsked:
    async def ask(self, touch: InTouch, time: Time, seconds: float, error: Exception | None) -> str:
        async def answer() -> str:
            time.now += seconds
            if error is not None:
                raise error
            return "said"

        return await touch.asked(answer())

    async def test_an_answer_in_time(self, time: Time) -> None:
        touch = in_touch(time, 2.0)
        assert await self.ask(touch, time, 0.9, None) == "said"
        assert touch.long_enough

    async def test_one_that_is_late(self, time: Time) -> None:
        touch = in_touch(time, 2.0)
        assert await self.ask(touch, time, 1.1, None) == "said"
        assert not touch.long_enough

    @pytest.mark.parametrize(("seconds", "answers"), [(0.9, True), (1.1, False)])
    async def test_a_refusal_is_an_answer(
        self, time: Time, seconds: float, *, answers: bool
    ) -> None:
        touch = in_touch(time, 2.0)
        with pytest.raises(RunNotFound):
            await self.ask(touch, time, seconds, RunNotFound("a-run-to-ask"))
        assert touch.long_enough is answers

    async def test_none_at_all(self, time: Time) -> None:
        touch = in_touch(time, 2.0)
        with pytest.raises(StoreUnavailable):
            await self.ask(touch, time, 0.1, StoreUnavailable("the network is down"))
        assert not touch.long_enough

    async def test_what_was_away_for_long_is_not_always_as_slow_as_that(self, time: Time) -> None:
        """Failures count as such, however long they take: the answer after them is late."""
        touch = in_touch(time, 2.0)
        for _ in range(8):
            with pytest.raises(StoreUnavailable):
                await self.ask(touch, time, 1.5, StoreUnavailable("no answer in time"))
        assert later(touch, time, 2.0)
        await self.ask(touch, time, 1.5, None)
        assert not touch.long_enough
