"""Group commit: the writes of one moment share a commit, and everybody gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from examples.custom_store import DocumentStore, KeyValueService

from tenure.model.errors import RunExists, RunNotFound, StoreRejected, StoreUnavailable
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import NewRun, Receipt, Update, Write, run_id_of
from tenure.ports.store import BatchUpdates
from tenure.runtime.group_commit import LARGEST_BATCH, GroupCommit, InTouch, StoreContact
from tenure.stores.memory import InMemoryStore
from tenure.testing.factories import annotate, new_run
from tests.runtime.puppets import PATIENCE


class Slow(InMemoryStore):
    """Each batch waits to be let go; ``batches`` are the run ids of each."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.open_gate = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0

    async def update_runs(self, writes: Sequence[Write]) -> list[Any]:
        self.batches.append([run_id_of(write) for write in writes])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.open_gate.wait()
        self.under_way -= 1
        return await super().update_runs(writes)


@pytest.fixture
def slow() -> Slow:
    return Slow()


async def soon() -> None:
    """Everything that can happen without waiting has happened."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_writes_of_one_turn_share_a_commit(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    writes = [new_run() for _ in range(5)]
    receipts = await asyncio.gather(*(combiner.write(write) for write in writes))
    assert slow.batches == [[write.snapshot.run_id for write in writes]]
    assert [each.run_id for each in receipts] == slow.batches[0]


async def test_a_write_alone_is_sent_at_once(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    for _ in range(3):
        await combiner.write(new_run())
    assert [len(batch) for batch in slow.batches] == [1, 1, 1]


async def test_what_comes_while_a_commit_is_under_way_gathers_for_the_next(slow: Slow) -> None:
    combiner = GroupCommit(slow)
    first = asyncio.ensure_future(combiner.write(new_run()))
    await soon()
    rest = []
    for _ in range(4):
        rest.append(asyncio.ensure_future(combiner.write(new_run())))
        await soon()
    slow.open_gate.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in slow.batches] == [1, 4]


async def test_nobody_is_answered_before_the_commit(slow: Slow) -> None:
    answer = asyncio.ensure_future(GroupCommit(slow).write(new_run()))
    await soon()
    assert slow.batches
    assert not answer.done()
    slow.open_gate.set()
    assert (await answer).version == 1


async def test_a_write_at_the_very_end_of_a_batch_is_not_stranded(slow: Slow) -> None:
    """Whoever was just answered writes again at once, when the sender is about to end."""
    slow.open_gate.set()
    combiner = GroupCommit(slow)

    async def one_after_another() -> Receipt:
        receipt = await combiner.write(new_run())
        for _ in range(20):
            receipt = await combiner.write(new_run())
        return receipt

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(one_after_another() for _ in range(3)))


@pytest.mark.parametrize("turns", range(8))
async def test_a_write_in_any_turn_after_the_last_is_answered(slow: Slow, turns: int) -> None:
    """The sender task ends, is noticed and discarded over several turns of the loop; a write may
    come in any of them."""
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    first = asyncio.ensure_future(combiner.write(new_run()))
    while not slow.batches:
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await combiner.write(new_run())
        await first


async def test_a_batch_is_bounded(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    await asyncio.gather(*(combiner.write(new_run()) for _ in range(LARGEST_BATCH + 1)))
    assert [len(batch) for batch in slow.batches] == [LARGEST_BATCH, 1]


async def test_one_refusal_is_its_writers_alone(slow: Slow) -> None:
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    known = new_run()
    await combiner.write(known)
    twin = new_run(run_id=known.snapshot.run_id)
    missing = annotate(RunSnapshot(run_id="no-such-run", workflow_name="x"), note=1)
    unstorable = new_run(vars={"x": object()})
    answers = await asyncio.gather(
        *(combiner.write(write) for write in (twin, missing, unstorable, new_run())),
        return_exceptions=True,
    )
    assert list(map(type, answers)) == [RunExists, RunNotFound, StoreRejected, Receipt]
    assert len(slow.batches) == 2


async def test_two_writes_of_one_run_are_sent_one_after_the_other(slow: Slow) -> None:
    """A batch may hold one of each run only; the second must hear why it is refused, and the first
    must not suffer for it."""
    slow.open_gate.set()
    combiner = GroupCommit(slow)
    first, other = new_run(), new_run()
    twin = new_run(run_id=first.snapshot.run_id)
    note = annotate(first.snapshot, note=1)
    answers = await asyncio.gather(
        *(combiner.write(write) for write in (first, twin, other, note)), return_exceptions=True
    )
    assert list(map(type, answers)) == [Receipt, RunExists, Receipt, Receipt]
    assert [len(batch) for batch in slow.batches] == [2, 1, 1]


async def test_when_a_batch_fails_everybody_gets_an_error_of_their_own(slow: Slow) -> None:
    async def fail(writes: Sequence[Write]) -> list[Any]:
        raise StoreUnavailable("down")

    slow.update_runs = fail  # type: ignore[method-assign]
    combiner = GroupCommit(slow)
    answers = await asyncio.gather(
        *(combiner.write(new_run()) for _ in range(3)), return_exceptions=True
    )
    assert [str(each) for each in answers] == ["down"] * 3
    assert all(isinstance(each, StoreUnavailable) for each in answers)
    assert len({id(each) for each in answers}) == 3, "a shared one gathers everybody's traceback"


@pytest.mark.parametrize("answer", [None, [], ["nonsense"] * 7])
async def test_a_store_that_answers_nonsense_leaves_nobody_waiting(
    slow: Slow, answer: object
) -> None:
    async def answered(writes: Sequence[Write]) -> Any:
        return answer

    slow.update_runs = answered  # type: ignore[method-assign]
    combiner = GroupCommit(slow)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(StoreUnavailable):
            await combiner.write(new_run())
        with pytest.raises(StoreUnavailable):
            await combiner.write(new_run())


async def test_a_waiter_who_gave_up_harms_nobody_and_its_write_stands(slow: Slow) -> None:
    combiner = GroupCommit(slow)
    impatient, patient = new_run(), new_run()
    gone = asyncio.ensure_future(combiner.write(impatient))
    stays = asyncio.ensure_future(combiner.write(patient))
    await soon()
    gone.cancel()
    slow.open_gate.set()
    assert (await stays).run_id == patient.snapshot.run_id
    assert (await slow.get_run(impatient.snapshot.run_id)).version == 1
    await combiner.close()


async def test_without_batches_each_write_is_a_call_of_its_own() -> None:
    class Bare(InMemoryStore):
        update_runs = None  # type: ignore[assignment]
        calls = 0

        async def create_run(self, new: Any) -> Receipt:
            self.calls += 1
            return await super().create_run(new)

        async def update_run(self, update: Any) -> Receipt:
            self.calls += 1
            return await super().update_run(update)

    store = Bare()
    combiner = GroupCommit(store)
    run = new_run()
    await combiner.write(run)
    assert (await combiner.write(annotate(run.snapshot, note=1))).version == 2
    with pytest.raises(RunExists):
        await combiner.write(new_run(run_id=run.snapshot.run_id))
    assert store.calls == 3


async def test_a_driver_that_leaks_its_errors_leaves_the_outcome_unknown() -> None:
    class Leaking(InMemoryStore):
        update_runs = None  # type: ignore[assignment]

        async def create_run(self, new: Any) -> Receipt:
            raise ConnectionResetError("peer")

    with pytest.raises(StoreUnavailable, match="peer") as caught:
        await GroupCommit(Leaking()).write(new_run())
    assert isinstance(caught.value.__cause__, ConnectionResetError)


class Parallel(Slow):
    batches_at_once = 2


async def test_batches_that_can_be_under_way_together_share_what_waits() -> None:
    store = Parallel()
    combiner = GroupCommit(store)
    writes = [asyncio.ensure_future(combiner.write(new_run())) for _ in range(6)]
    await soon()
    more = [asyncio.ensure_future(combiner.write(new_run())) for _ in range(4)]
    await soon()
    store.open_gate.set()
    await asyncio.gather(*writes, *more)
    assert store.most_under_way == 2
    assert [len(batch) for batch in store.batches] == [3, 3, 4]


async def test_close_waits_for_what_is_under_way(slow: Slow) -> None:
    combiner = GroupCommit(slow)
    answer = asyncio.ensure_future(combiner.write(new_run()))
    await soon()
    closing = asyncio.ensure_future(combiner.close())
    await soon()
    assert not closing.done()
    slow.open_gate.set()
    await closing
    assert (await answer).version == 1


class Foreign:
    """An integrator's store whose driver throws its own errors."""

    durable = True

    def __init__(self) -> None:
        self.calls = 0

    async def create_run(self, new: NewRun) -> Receipt:
        self.calls += 1
        raise RuntimeError("connection reset by the driver")

    async def update_run(self, update: Update) -> Receipt:
        raise KeyError("cursor")

    async def get_run(self, run_id: str) -> RunSnapshot:
        raise RunNotFound(run_id)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return Page()


async def test_a_drivers_own_error_is_an_unknown_outcome_and_never_leaks() -> None:
    combiner = GroupCommit(Foreign())
    with pytest.raises(StoreUnavailable, match="connection reset by the driver") as caught:
        await combiner.write(new_run())
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(StoreUnavailable):
        await combiner.write(annotate(new_run().snapshot, note=1))


class TestWhatIsHeardOfTheStore:
    """By those who judge owners that did not renew."""

    @pytest.fixture
    async def contact(self) -> StoreContact:
        contact = StoreContact(20.0)
        contact.since = 0.0
        return contact

    async def test_nothing_while_it_answers(self, contact: StoreContact) -> None:
        store = InMemoryStore()
        combiner = GroupCommit(store, InTouch(contact))
        run = new_run()
        await combiner.write(run)
        with pytest.raises(RunExists):
            await combiner.write(new_run(run_id=run.snapshot.run_id))
        assert not contact.since

    async def test_that_it_fails(self, contact: StoreContact) -> None:
        class Failing(InMemoryStore):
            async def update_runs(self, writes: Sequence[Write]) -> list[Any]:
                raise StoreUnavailable("the network is down")

        with pytest.raises(StoreUnavailable):
            await GroupCommit(Failing(), InTouch(contact)).write(new_run())
        assert contact.since

    async def test_that_it_takes_nothing_of_a_batch(self, contact: StoreContact) -> None:
        with pytest.raises(StoreUnavailable):
            await GroupCommit(Locked(), InTouch(contact)).write(new_run(run_id="locked-run"))
        assert contact.since

    async def test_not_that_one_run_of_many_is_locked(self, contact: StoreContact) -> None:
        combiner = GroupCommit(Locked(), InTouch(contact))
        writes = combiner.write(new_run(run_id="locked-run")), combiner.write(new_run())
        locked, other = await asyncio.gather(*writes, return_exceptions=True)
        assert isinstance(locked, StoreUnavailable)
        assert isinstance(other, Receipt)
        assert not contact.since

    async def test_that_a_write_alone_fails(self, contact: StoreContact) -> None:
        store = DocumentStore(KeyValueService())
        assert not isinstance(store, BatchUpdates)
        combiner = GroupCommit(store, InTouch(contact))
        await combiner.write(new_run())
        assert not contact.since

        async def fail(new: NewRun) -> Receipt:
            raise ConnectionError("the driver's own")

        store.create_run = fail  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await combiner.write(new_run())
        assert contact.since


class Locked(InMemoryStore):
    """Somebody has locked the run of that name."""

    async def update_runs(self, writes: Sequence[Write]) -> list[Any]:
        outcomes = await super().update_runs(writes)
        return [
            StoreUnavailable("locked") if run_id_of(write) == "locked-run" else outcome
            for write, outcome in zip(writes, outcomes, strict=True)
        ]
