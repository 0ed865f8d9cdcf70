"""Settling by what this process remembers of its claims, beside other processes and failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenure.model.errors import DeliveryLost, DeliveryNotFound, StoreUnavailable
from tenure.model.outbox import Delivered, Delivery, GiveUp, Settlement, origin_of
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import DeliveryState
from tenure.stores.sqlite import SQLiteStore
from tenure.testing.clock import ManualClock
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.factories import HOOK, end_run, finish_step, start_step


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
    async with await SQLiteStore.open(tmp_path / "runs.db", clock) as store:
        yield store


@pytest.fixture
async def other(store: SQLiteStore, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
    """As another process opens it."""
    async with await SQLiteStore.open(store.path, clock) as other:
        yield other


def settled(held: Delivery, token: str) -> Settlement:
    return Settlement(held.id, token, Delivered())


async def states(store: SQLiteStore) -> dict[str, DeliveryState]:
    return {each.id: each.state for each in (await store.list_deliveries()).items}


async def test_what_another_process_has_claimed_meanwhile_is_lost_and_harms_no_other(
    store: SQLiteStore, other: SQLiteStore, clock: ManualClock
) -> None:
    for _ in range(3):
        await create(store, callbacks=(HOOK,))
    held = await store.claim_deliveries("ours", seconds=30)
    clock.advance(30)
    (theirs,) = await other.claim_deliveries("theirs", limit=1, seconds=30)
    answers, claimed = await store.settle_and_claim([settled(one, "ours") for one in held], "next")
    refused = [isinstance(answer, DeliveryLost) for answer in answers]
    assert refused == [one.id == theirs.id for one in held]
    assert claimed == []
    assert (await states(store))[theirs.id] is DeliveryState.WAITING
    assert (await other.settle_delivery(theirs.id, "theirs", Delivered())).attempts == 1


async def test_what_another_process_has_settled_meanwhile_is_not_settled_again(
    store: SQLiteStore, other: SQLiteStore, clock: ManualClock
) -> None:
    run = await create(store, callbacks=(HOOK,))
    (held,) = await store.claim_deliveries("ours", seconds=30)
    clock.advance(30)
    await other.claim_deliveries("theirs", seconds=30)
    await other.settle_delivery(held.id, "theirs", GiveUp("410"))
    with pytest.raises(DeliveryLost):
        await store.settle_delivery(held.id, "ours", Delivered())
    error = (await store.get_run(run.run_id)).callback_error
    assert error is not None
    assert error.error == "410"


async def test_what_is_gone_meanwhile_is_not_found(store: SQLiteStore) -> None:
    await create(store, callbacks=(HOOK,))
    (held,) = await store.claim_deliveries("ours")
    await store._writer.run(store._writer.connection.execute, "delete from deliveries")
    with pytest.raises(DeliveryNotFound):
        await store.settle_delivery(held.id, "ours", Delivered())


async def test_settling_that_was_rolled_back_is_done_when_it_is_sent_again(
    store: SQLiteStore,
) -> None:
    """And what the store remembers of the run was never wrong: its owner goes on."""
    run = await create_embedded(store, callbacks=(HOOK,))
    run = await write(store, start_step(run))
    (held,) = await store.claim_deliveries("ours")
    connection = store._writer.connection
    failures = ["commit"]

    def fail(_: object, sql: str, values: object) -> bool:
        if sql not in failures:
            return True
        failures.remove(sql)
        return False

    connection.exec_trace = fail
    with pytest.raises(StoreUnavailable):
        await store.settle_delivery(held.id, "ours", GiveUp("410"))
    assert not failures
    assert (await store.get_run(run.run_id)).callback_error is None
    assert (await states(store))[held.id] is DeliveryState.WAITING
    again = await store.settle_delivery(held.id, "ours", GiveUp("410"))
    assert (again.state, again.attempts) == (DeliveryState.DEAD, 1)
    ended = await write(store, end_run(await write(store, finish_step(run))))
    assert ended.callback_error is not None
    assert ended.callback_error.error == "410"


async def test_what_is_forgotten_is_read(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.stores.sqlite.outbox._MAX_CACHED", 1)
    for _ in range(3):
        await create(store, callbacks=(HOOK,))
    held = await store.claim_deliveries("ours")
    answers = await store.settle_deliveries([settled(one, "ours") for one in held])
    assert [getattr(answer, "attempts", None) for answer in answers] == [1, 1, 1]
    assert set((await states(store)).values()) == {DeliveryState.DELIVERED}


async def test_of_very_many_that_fall_due_at_once_none_is_forgotten(
    store: SQLiteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a day without a relay, or after a new start of the machine."""
    monkeypatch.setattr("tenure.stores.sqlite.outbox._RESTS_AT_ONCE", 2)
    runs = [(await create(store, callbacks=(HOOK,))).run_id for _ in range(5)]
    assert len(await store.claim_deliveries("died", seconds=30)) == 5
    clock.advance(30)
    claimed = [await store.claim_deliveries(f"token-{number}") for number in range(4)]
    assert [len(each) for each in claimed] == [2, 2, 1, 0]
    clock.reboot()
    claimed = [await store.claim_deliveries(f"again-{number}") for number in range(4)]
    assert [len(each) for each in claimed] == [2, 2, 1, 0]
    assert sorted(one.run_id for each in claimed for one in each) == sorted(runs)


async def test_of_very_many_receivers_each_is_looked_at_in_its_turn(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim takes as long for ten thousand as for a few: all who write wait for it."""
    monkeypatch.setattr("tenure.stores.sqlite.outbox._ORIGINS_AT_ONCE", 3)
    urls = [f"https://receiver-{number}.example/hook" for number in range(8)]
    for _ in range(2):
        for url in urls:
            await create(store, callbacks=(CallbackTarget(name="hook", url=url),))
    rounds = [
        [one.target.url or "" for one in await store.claim_deliveries(f"t{number}", per_origin=1)]
        for number in range(8)
    ]
    assert all(0 < len(claimed) <= 3 for claimed in rounds[:5])
    assert set().union(*rounds[:4]) == set(urls), "somebody was passed over"
    assert sorted(url for claimed in rounds for url in claimed) == sorted(urls * 2)
    assert rounds[-1] == []


async def test_any_number_of_receivers_left_out_hide_nobody(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.stores.sqlite.outbox._ORIGINS_AT_ONCE", 3)
    hooks = [CallbackTarget(name="hook", url=f"https://r{number}.example") for number in range(20)]
    for hook in hooks:
        await create(store, callbacks=(hook,))
    origins = [origin_of(hook) for hook in hooks]
    for number in (13, 2, 19, 0):
        others = [each for each in origins if each != origins[number]]
        (one,) = await store.claim_deliveries(f"token-{number}", except_origins=others)
        assert one.target == hooks[number]
