"""Who waits for a run's file gets it, and stands in nobody's way meanwhile."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.stores.file import FileStore, disk, gate, patience, written
from tenure.stores.file import journal as journals
from tenure.stores.file.birth import sweep_temporaries
from tenure.stores.file.disk import Locked, OpenFile, open_locked
from tenure.stores.file.patience import Patience
from tenure.stores.file.records import Record, decode_record
from tenure.stores.file.turn import Turn
from tenure.testing.factories import annotate, new_run

pytestmark = pytest.mark.slow

PATIENCE = 20.0
FOR_EVER = 1000.0
HELD, FREE = "held-run", "free-run"
STORE = "tenure.stores.file.store"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STORE}.READ_PATIENCE", FOR_EVER)
    monkeypatch.setattr(f"{STORE}.WRITE_PATIENCE", FOR_EVER)


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    async with FileStore(tmp_path) as store:
        await store.create_run(new_run(run_id=HELD))
        await store.create_run(new_run(run_id=FREE))
    return tmp_path


def journal_of(directory: Path, run_id: str = HELD) -> Path:
    (path,) = directory.glob(f"{run_id}.*.journal")
    return path


@contextmanager
def locked(path: Path, how: int) -> Iterator[None]:
    with path.open("rb") as file:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        yield


def write(store: FileStore, note: str = "later") -> asyncio.Future[object]:
    update = annotate(new_run(run_id=HELD).snapshot, note_id=note, said=note)
    return asyncio.ensure_future(store.update_run(update))


async def gate_is_held(directory: Path) -> Path:
    while True:
        for path in directory.glob(f".{HELD}.*.gate"):
            if gate.is_held(path):
                return path
        await asyncio.sleep(0.001)


# Nobody has a file locked for longer than it takes to fetch bytes


async def test_what_was_read_is_decoded_with_the_file_free(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Path] = []

    def with_the_file_free(payload: bytes, place: str) -> Record:
        path = journal_of(directory)
        with locked(path, fcntl.LOCK_EX):
            decoded.append(path)
        return decode_record(payload, place)

    asks: list[Callable[[FileStore], Awaitable[object]]] = [
        lambda store: store.get_run(HELD),
        lambda store: store.read_events(HELD),
        lambda store: store.get_definition(HELD),
        lambda store: store.is_live(HELD),
    ]
    for ask in asks:
        async with FileStore(directory) as store:
            with monkeypatch.context() as patch:
                for module in (journals, written):
                    patch.setattr(module, "decode_record", with_the_file_free)
                decoded.clear()
                await ask(store)
            assert decoded


# Who waits to write has the others give way


async def test_who_comes_to_read_lets_in_who_waits_to_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else there is a reader at every moment, and never a write."""
    monkeypatch.setattr("tenure.stores.file.turn.COURTESY", FOR_EVER)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as one, FileStore(directory) as two:
        with locked(journal_of(directory), fcntl.LOCK_SH):
            writing = write(one)
            await gate_is_held(directory)
            reading = asyncio.ensure_future(two.get_run(HELD))
            listing = asyncio.ensure_future(two.list_runs())
            await asyncio.wait([reading, listing], timeout=0.1)
            assert not reading.done()
            assert not listing.done()
        await writing
        assert (await reading).version == 2
        assert {run.run_id: run.version for run in (await listing).items} == {HELD: 2, FREE: 1}
    assert list(directory.glob(".*")) == []


async def test_who_comes_to_write_lets_in_who_waits_to_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.stores.file.turn.COURTESY", FOR_EVER)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as one, FileStore(directory) as two:
        with locked(journal_of(directory), fcntl.LOCK_SH):
            writes = [write(one, "first")]
            await gate_is_held(directory)
            writes.append(write(two, "second"))
        await asyncio.gather(*writes)
        assert [note.id for note in (await one.get_run(HELD)).annotations] == ["first", "second"]


async def test_who_reads_gives_way_for_a_moment_only(directory: Path) -> None:
    """A reader that is stopped holds up who writes, and not those who read."""
    async with asyncio.timeout(PATIENCE), FileStore(directory) as one, FileStore(directory) as two:
        with locked(journal_of(directory), fcntl.LOCK_SH):
            writing = write(one)
            await gate_is_held(directory)
            assert (await two.get_run(HELD)).version == 1
            assert not writing.done()
        await writing


@pytest.mark.parametrize("how", ["canceled", "refused", "closed"])
async def test_who_no_longer_waits_stands_in_nobodys_way(
    directory: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("tenure.stores.file.turn.COURTESY", FOR_EVER)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as one, FileStore(directory) as two:
        with locked(journal_of(directory), fcntl.LOCK_SH):
            if how == "refused":
                monkeypatch.setattr(f"{STORE}.WRITE_PATIENCE", 0.1)
            writing = write(one)
            if how != "refused":
                await gate_is_held(directory)
            if how == "canceled":
                writing.cancel()
            if how == "closed":
                await one.close()
            with pytest.raises((asyncio.CancelledError, StoreUnavailable)):
                await writing
            assert (await two.get_run(HELD)).version == 1
        assert list(directory.glob(".*")) == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_gate_stays_with_the_process_that_waits(tmp_path: Path) -> None:
    """A forked child may unwind what its parent was in the middle of."""
    path, waiting = tmp_path / ".some.gate", gate.Gate()
    waiting.hold(path)
    child = os.fork()
    if not child:
        try:
            waiting.end()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert gate.is_held(path)
    waiting.end()
    assert not path.exists()


async def test_gate_of_the_dead_stops_nobody_and_goes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.stores.file.turn.COURTESY", FOR_EVER)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as store:
        with locked(journal_of(directory), fcntl.LOCK_SH):
            writing = write(store)
            path = await gate_is_held(directory)
        await writing
        path.touch()
        assert (await store.get_run(HELD)).version == 2
        async with FileStore(directory) as other:
            await other.list_runs()
        assert not path.exists()


# Waiting takes no thread


async def test_those_who_wait_for_one_run_leave_the_threads_to_the_others(directory: Path) -> None:
    async with asyncio.timeout(PATIENCE), FileStore(directory) as store:
        with locked(journal_of(directory), fcntl.LOCK_EX):
            waiting = [write(store, f"note-{number}") for number in range(20)]
            await gate_is_held(directory)
            for _ in range(5):
                assert (await store.get_run(FREE)).run_id == FREE
            assert not any(one.done() for one in waiting)
        await asyncio.gather(*waiting)
        assert (await store.get_run(HELD)).version == 21


async def test_who_waits_when_the_store_is_closed_gets_a_moment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_CLOSING_PATIENCE", FOR_EVER)
    store = FileStore(directory)
    async with asyncio.timeout(PATIENCE):
        with locked(journal_of(directory), fcntl.LOCK_EX):
            writing = write(store)
            await gate_is_held(directory)
            closing = asyncio.ensure_future(store.close())
            await asyncio.wait([closing], timeout=0.1)
            assert not closing.done()
        await asyncio.gather(writing, closing)
    async with FileStore(directory) as other:
        assert (await other.get_run(HELD)).version == 2


def test_look_that_outlives_its_call_waits_for_nothing(directory: Path) -> None:
    path, gate_path = journal_of(directory), directory / ".some.gate"
    with Turn(Patience(), FOR_EVER) as turn:
        pass
    with locked(path, fcntl.LOCK_EX), pytest.raises(Locked):
        turn.look(lambda turn: turn.lock(path, gate_path, exclusive=True))
    assert not gate_path.exists()


class Hours:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in ("patience", "turn"):
            monkeypatch.setattr(f"tenure.stores.file.{module}.monotonic", lambda: self.now)


def test_patience_counts_from_when_it_was_asked(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from when a thread was free for it."""
    clock = Hours(monkeypatch)
    path = journal_of(directory)

    def look(turn: Turn) -> None:
        turn.lock(path, directory / ".gate", exclusive=False).close()

    with locked(path, fcntl.LOCK_EX):
        with Turn(Patience(), 10.0) as turn:
            clock.now += 9.0
            with pytest.raises(Locked):
                turn.look(look)
            clock.now += 1.0
            with pytest.raises(StoreUnavailable, match="for 10 s"):
                turn.look(look)
        with Turn(Patience(), 10.0) as turn:
            clock.now += 11.0
            with pytest.raises(StoreUnavailable, match="for 11 s"):
                turn.look(look)


async def test_list_is_patient_with_what_is_locked_however_long_the_rest_takes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{STORE}.READ_PATIENCE", 10.0)
    clock = Hours(monkeypatch)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as store:
        gather = store._listing.gather

        def slowly(turn: Turn) -> object:
            clock.now += 100.0
            return gather(turn)

        monkeypatch.setattr(store._listing, "gather", slowly)
        with locked(journal_of(directory), fcntl.LOCK_EX):
            listing = asyncio.ensure_future(store.list_runs())
            await asyncio.wait([listing], timeout=0.1)
            assert not listing.done()
        assert len((await listing).items) == 2


async def test_reading_and_writing_have_each_their_own_patience(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{STORE}.READ_PATIENCE", 0.0)
    async with asyncio.timeout(PATIENCE), FileStore(directory) as store:
        with locked(journal_of(directory), fcntl.LOCK_EX):
            writing = write(store)
            await gate_is_held(directory)
            for ask in (store.get_run, store.read_events, store.get_definition, store.is_live):
                with pytest.raises(StoreUnavailable):
                    await ask(HELD)
            with pytest.raises(StoreUnavailable):
                await store.list_runs()
            assert not writing.done()
        await writing


def test_the_more_is_under_way_the_less_often_each_looks() -> None:
    patience = Patience()
    alone = [patience.pause(20) for _ in range(20)]
    for _ in range(400):
        patience.one_more()
    assert min(patience.pause(20) for _ in range(20)) > 10 * max(alone)


# Files that come and go while they are being locked


def before_the_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Somebody else is faster, once."""
    lock, todo = OpenFile.lock, [act]

    def late(self: OpenFile, how: int) -> bool:
        if todo:
            todo.pop()()
        return lock(self, how)

    monkeypatch.setattr(disk.OpenFile, "lock", late)


def test_file_that_was_taken_back_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "taken-back"
    path.touch()
    before_the_lock(monkeypatch, path.unlink)
    with pytest.raises(FileNotFoundError):
        open_locked(path, exclusive=True)


def test_file_that_was_made_anew_is_the_one_that_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made-anew"
    path.touch()

    def make_anew() -> None:
        path.unlink()
        path.write_text("new")

    before_the_lock(monkeypatch, make_anew)
    with open_locked(path, exclusive=True) as fd:
        assert os.fstat(fd).st_ino == path.stat().st_ino


async def test_run_that_was_taken_back_is_not_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FileStore(directory) as store:
        await store.get_run(FREE)
        before_the_lock(monkeypatch, journal_of(directory).unlink)
        with pytest.raises(RunNotFound):
            await store.get_run(HELD)


async def test_run_is_created_while_others_sweep(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its file is locked it looks like one that a dead writer left."""
    async with FileStore(directory) as store:
        await store.get_run(FREE)
        swept: list[Path] = []

        def sweep() -> None:
            swept.extend(directory.glob(".*.tmp"))
            sweep_temporaries(directory)

        before_the_lock(monkeypatch, sweep)
        await store.create_run(new_run(run_id="newborn-run"))
        assert len(swept) == 1
        assert not swept[0].exists()
        assert (await store.get_run("newborn-run")).version == 1
    assert list(directory.glob(".*")) == []


def test_sweeping_leaves_alone_what_somebody_has_locked(tmp_path: Path) -> None:
    used, left = tmp_path / ".used-run.012345.tmp", tmp_path / ".left-run.012345.tmp"
    for path in (used, left):
        path.touch()
    with locked(used, fcntl.LOCK_EX):
        sweep_temporaries(tmp_path)
        assert list(tmp_path.iterdir()) == [used]
    sweep_temporaries(tmp_path)
    assert list(tmp_path.iterdir()) == []
