"""Claims that ask for some callbacks and leave others alone."""

from __future__ import annotations

from tenure.model.outbox import Delivered, Delivery, RetryLater, origin_of
from tenure.model.snapshot import CallbackTarget
from tenure.testing.contracts.acts import create, create_embedded
from tenure.testing.contracts.harness import CallingStore, ContractHarness
from tenure.testing.factories import end_run, unique

BUSY = CallbackTarget(name="busy", url="https://busy.example/hook")
BUSY_TOO = CallbackTarget(name="busy-too", url="https://BUSY.example:443/other?path#here")
IDLE = CallbackTarget(name="idle", url="http://idle.example")
NAMELESS = CallbackTarget(name="no-url")


class OriginClaims(ContractHarness):
    async def test_origins_left_out_are_not_claimed(self, store: CallingStore) -> None:
        for target in (BUSY, BUSY_TOO, IDLE, NAMELESS):
            await create(store, callbacks=(target,))
        claimed = await _claim(store, except_origins=[origin_of(BUSY), "https://unknown.example"])
        assert sorted(one.target.name for one in claimed) == ["idle", "no-url"]
        claimed = await _claim(store)
        assert sorted(one.target.name for one in claimed) == ["busy", "busy-too"]

    async def test_so_many_of_each_origin_soonest_due_first(self, store: CallingStore) -> None:
        runs = []
        for target in (BUSY, BUSY_TOO, BUSY, IDLE, BUSY, IDLE):
            runs.append(await create(store, callbacks=(target,)))
            await self.pass_time(0.01)
        claimed = await _claim(store, per_origin=2)
        expected = [runs[number].run_id for number in (0, 1, 3, 5)]
        assert [one.run_id for one in claimed] == expected
        claimed = await _claim(store, per_origin=2)
        assert [one.run_id for one in claimed] == [runs[2].run_id, runs[4].run_id]

    async def test_limit_is_over_all_origins(self, store: CallingStore) -> None:
        runs = []
        for target in (IDLE, BUSY, IDLE, BUSY, BUSY):
            runs.append(await create(store, callbacks=(target,)))
            await self.pass_time(0.01)
        claimed = await _claim(store, limit=3, per_origin=2)
        assert [one.run_id for one in claimed] == [run.run_id for run in runs[:3]]

    async def test_only_what_is_named_is_claimed(self, store: CallingStore) -> None:
        for target in (IDLE, BUSY, BUSY, BUSY):
            await create(store, callbacks=(target,))
            await self.pass_time(0.01)
        *busy, idle = (each.id for each in (await store.list_deliveries()).items)
        assert await _claim(store, only=[]) == []
        assert await _claim(store, only=["nobody-knows-it"]) == []
        assert await _claim(store, only=[idle], except_origins=[origin_of(IDLE)]) == []
        few = await _claim(store, only=[*busy, idle], per_origin=1, limit=2)
        assert [one.id for one in few] == [idle, busy[-1]]
        assert [one.id for one in await _claim(store, only=[idle, busy[0]])] == [busy[0]]
        assert [one.id for one in await _claim(store)] == [busy[1]]

    async def test_what_is_named_keeps_its_turn(self, store: CallingStore) -> None:
        run = await create_embedded(store, callbacks=(BUSY,))
        await store.update_run(end_run(run))
        later, head = (await store.list_deliveries()).items
        assert await _claim(store, only=[later.id]) == []
        (held,) = await _claim(store, only=[head.id, later.id])
        assert held.id == head.id
        await store.settle_delivery(head.id, held.token or "", RetryLater(3000, "503"))
        assert await _claim(store, only=[head.id, later.id]) == []

    async def test_what_cannot_be_claimed_takes_no_place(self, store: CallingStore) -> None:
        """Neither one that rests nor one behind another counts against its origin."""
        resting = await create_embedded(store, callbacks=(BUSY,))
        await store.update_run(end_run(resting))
        (held,) = await _claim(store)
        await store.settle_delivery(held.id, held.token or "", RetryLater(3000, "503"))
        await self.pass_time(0.01)
        sent = await create_embedded(store, "owner-b", callbacks=(BUSY,))
        (head,) = await _claim(store)
        await store.settle_delivery(head.id, head.token or "", Delivered())
        await store.update_run(end_run(sent))
        await self.pass_time(0.01)
        (in_flight,) = await _claim(store)
        await store.requeue_delivery(head.id)
        await self.pass_time(0.01)
        free = await create(store, callbacks=(BUSY,))
        assert [one.run_id for one in await _claim(store, per_origin=1)] == [free.run_id]
        await store.settle_delivery(in_flight.id, in_flight.token or "", Delivered())
        assert [one.id for one in await _claim(store, per_origin=1)] == [head.id]

    async def test_claim_sent_again_returns_what_is_held_wherever_it_goes(
        self, store: CallingStore
    ) -> None:
        for target in (BUSY, BUSY, IDLE):
            await create(store, callbacks=(target,))
        token = unique("token")
        first = await store.claim_deliveries(token, per_origin=2)
        again = await store.claim_deliveries(
            token, per_origin=1, except_origins=[origin_of(BUSY), origin_of(IDLE)]
        )
        assert sorted(one.id for one in again) == sorted(one.id for one in first)
        assert len(first) == 3

    async def test_redelivery_keeps_its_origin(self, store: CallingStore) -> None:
        await create(store, callbacks=(BUSY,))
        (held,) = await _claim(store)
        await store.settle_delivery(held.id, held.token or "", Delivered())
        await store.requeue_delivery(held.id)
        assert await _claim(store, except_origins=[origin_of(BUSY)]) == []
        assert [one.id for one in await _claim(store)] == [held.id]


async def _claim(
    store: CallingStore,
    *,
    limit: int = 100,
    per_origin: int | None = None,
    except_origins: list[str] | None = None,
    only: list[str] | None = None,
) -> list[Delivery]:
    return await store.claim_deliveries(
        unique("token"),
        limit=limit,
        seconds=3600,
        per_origin=per_origin,
        except_origins=except_origins or (),
        only=only,
    )
