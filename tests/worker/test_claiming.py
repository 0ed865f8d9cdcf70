"""What a claim of one run, as a hint names it, says about the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenure
from tenure.model.errors import LeaseHeld, StoreUnavailable
from tenure.runtime.group_commit import InTouch
from tenure.runtime.session import Identity, Session
from tenure.stores.memory import InMemoryStore
from tenure.system import SystemClock, new_update_id, presence
from tenure.testing.contracts.acts import claim, create
from tenure.worker.claims import Claims
from tests.runtime.puppets import Between

TIMING = tenure.Timing(lease_duration=6, renew_interval=2)
TOO_LATE = TIMING.renew_interval / 2 + 0.1


class Claimer:
    """Of one run that somebody has. Its event loop's time passes when the test says so."""

    def __init__(self, store: Between, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)
        identity = Identity(
            owner_id="me", new_id=new_update_id, presence=presence, now=SystemClock().now
        )
        session = Session(store, identity, TIMING)
        self.touch = InTouch(session.contact)
        self.touch.rests(self.now + 1000)
        self._claims = Claims(session, store, ("default",), self.touch)
        self._run_id = run_id
        self.now += TIMING.renew_interval

    async def claims(self) -> None:
        await self._claims.this_one(self._run_id)


@pytest.fixture
async def store() -> Between:
    return Between(InMemoryStore())


@pytest.fixture
async def claimer(store: Between, monkeypatch: pytest.MonkeyPatch) -> Claimer:
    run = await create(store.real)
    await claim(store.real, run.run_id, "somebody")
    return Claimer(store, run.run_id, monkeypatch)


async def test_nothing_if_it_is_answered(claimer: Claimer) -> None:
    with pytest.raises(LeaseHeld):
        await claimer.claims()
    assert claimer.touch.long_enough


async def test_that_it_was_away_if_it_is_not(store: Between, claimer: Claimer) -> None:
    async def fail(real: Any, *args: Any) -> Any:
        raise StoreUnavailable("the network is down")

    store.rules["claim_run"] = fail
    with pytest.raises(StoreUnavailable):
        await claimer.claims()
    assert not claimer.touch.long_enough


async def test_so_too_if_the_answer_comes_late(store: Between, claimer: Claimer) -> None:
    async def late(real: Any, *args: Any) -> Any:
        claimer.now += TOO_LATE
        return await real(*args)

    store.rules["claim_run"] = late
    with pytest.raises(LeaseHeld):
        await claimer.claims()
    assert not claimer.touch.long_enough
