"""One attempt, and what it means for the next."""

from __future__ import annotations

import asyncio
from math import inf, nan

import pytest
from msgspec.structs import replace

from tenure.model.outbox import Delivered, GiveUp, RetryLater
from tenure.model.retry import RetryPolicy
from tenure.ports.callbacks import NotTaken
from tenure.runtime.attempts import CUT_SHORT, attempt, outcome_of
from tenure.runtime.options import RelayTiming
from tests.runtime_relay.senders import BUSY, GONE, Postman, hanging
from tests.runtime_relay.test_lanes import held

POLICY = RetryPolicy(attempts=8, delay=5, backoff=4, max_delay=3600, jitter=0.2)
DELIVERY = held("receiver").delivery


class TestOutcome:
    def test_taken_is_delivered(self) -> None:
        assert outcome_of(None, DELIVERY, POLICY, 0.5) == Delivered()

    def test_pointless_is_given_up_at_once(self) -> None:
        assert outcome_of(GONE, DELIVERY, POLICY, 0.5) == GiveUp("410 Gone")

    def test_waits_grow_until_the_last_attempt(self) -> None:
        *waits, last = (
            outcome_of(BUSY, replace(DELIVERY, attempts=attempts), POLICY, 0.0)
            for attempts in range(POLICY.attempts)
        )
        assert waits == [
            RetryLater(delay, BUSY.error) for delay in (5, 20, 80, 320, 1280, 3600, 3600)
        ]
        assert last == GiveUp(BUSY.error)

    def test_luck_takes_its_share(self) -> None:
        assert outcome_of(BUSY, DELIVERY, POLICY, 0.5) == RetryLater(4.5, BUSY.error)

    @pytest.mark.parametrize(
        ("asked_for", "wait"),
        [(0, 5), (3, 5), (7.5, 7.5), (100_000, 3600), (-1, 5), (inf, 3600), (nan, 5)],
    )
    def test_what_the_target_asked_for_is_honoured_within_bounds(
        self, asked_for: float, wait: float
    ) -> None:
        answer = replace(BUSY, not_before=asked_for)
        assert outcome_of(answer, DELIVERY, POLICY, 0.0) == RetryLater(wait, BUSY.error)

    def test_wording_can_always_be_stored(self) -> None:
        answer = NotTaken(error="half a pair \ud800 " + "x" * 100_000, again=False)
        outcome = outcome_of(answer, DELIVERY, POLICY, 0.0)
        assert isinstance(outcome, GiveUp)
        assert outcome.error.startswith("half a pair ? xxx")
        assert len(outcome.error) == 2000

    def test_cut_short_is_an_attempt_like_any_other(self) -> None:
        second = replace(DELIVERY, attempts=1)
        assert outcome_of(CUT_SHORT, second, POLICY, 0.0) == RetryLater(20, CUT_SHORT.error)
        last = replace(DELIVERY, attempts=7)
        assert outcome_of(CUT_SHORT, last, POLICY, 0.0) == GiveUp(CUT_SHORT.error)


class TestAttempt:
    async def test_answer_comes_through(self) -> None:
        assert await attempt(Postman(), DELIVERY, inf) is None
        assert await attempt(Postman(hook=lambda _: GONE), DELIVERY, inf) == GONE

    async def test_sender_that_overruns_is_cut_off(self) -> None:
        now = asyncio.get_running_loop().time()
        answer = await attempt(Postman(hook=hanging), DELIVERY, now + 0.01)
        assert answer == NotTaken(error="no answer in time", again=True)

    async def test_sender_that_breaks_costs_no_callback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = Postman(hook=lambda _: KeyError("secret"))
        answer = await attempt(broken, DELIVERY, inf)
        assert answer == NotTaken(error="the sender failed: KeyError", again=True)
        assert DELIVERY.id in caplog.text


class TestTiming:
    def test_claim_outlasts_what_must_fit_into_it(self) -> None:
        timing = RelayTiming()
        begin_by, end_by = timing.limits(1000.0)
        assert 1000.0 < begin_by < begin_by + timing.send < end_by < 1000.0 + timing.claim

    @pytest.mark.parametrize("name", ["send", "begin", "margin", "poll"])
    @pytest.mark.parametrize("seconds", [0, -1, nan])
    def test_what_cannot_work_is_refused(self, name: str, seconds: float) -> None:
        with pytest.raises(ValueError, match=name):
            RelayTiming(**{name: seconds})
