"""The port methods over files; ``store`` calls them in threads.

A write locks the run's journal, takes in what others appended, asks the model, appends one
record, syncs. A read locks it shared, so that it never shows a write that may still fail, and only
while it fetches what was appended: records do not change. It does show a whole record whose writer
was killed before the sync, and which becomes durable with the next write. None waits for a lock of
another process: it ends with ``Locked``, and is called again.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from tenure.model.codec import storable
from tenure.model.decide import Circumstances, apply, waits_for_approval
from tenure.model.errors import RunNotFound, StoreIncompatible
from tenure.model.ids import check_run_id
from tenure.model.leases import already_retried, check_repeated, create, present
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import NewRun, Position, Receipt, RecordedEvent, Update, receipt
from tenure.ports.environment import Clock
from tenure.stores.file.birth import create_file, sweep_temporaries
from tenure.stores.file.disk import (
    Locked,
    OpenFile,
    open_locked,
    reported,
    sync,
    sync_directory,
)
from tenure.stores.file.frames import frame
from tenure.stores.file.journal import Identity, Journal
from tenure.stores.file.live import LiveLocks
from tenure.stores.file.names import Names, is_run_id, run_of_journal, run_of_live
from tenure.stores.file.records import (
    creation_record,
    encode_record,
    events_of,
    update_record,
)
from tenure.stores.file.told import Told
from tenure.stores.file.turn import Turn
from tenure.stores.file.written import Written

MAX_REPLAYED = 256
"""Runs kept in memory as replayed; the others are read again when asked for."""


class Look(NamedTuple):
    """A run at one moment, still the store's own memory: ``copied`` before it leaves."""

    run: RunSnapshot
    order: int
    identity: Identity | None


class Seen(NamedTuple):
    """What a journal said when it was locked; its records may still be read."""

    fd: int
    run: RunSnapshot
    is_live: bool
    order: int
    identity: Identity | None
    written: Written


class FileRuns:
    def __init__(self, names: Names, clock: Clock) -> None:
        self._names = names
        self._clock = clock
        self._live = LiveLocks(names)
        self._doubted = Told()
        self._lock = threading.Lock()
        self._journals: OrderedDict[str, Journal] = OrderedDict()
        self._newest_order = 0

    # Writing

    def create(self, new: NewRun, turn: Turn) -> Receipt:
        run_id = check_run_id(new.snapshot.run_id)
        path = self._names.journal(run_id)
        with reported(path), self._alone_if_retry(new, turn):
            while True:
                if not path.exists() and (born := self._create(new)):
                    return born
                # Not found: whoever was faster failed in the end and took the file back.
                with suppress(RunNotFound):
                    return self._created_before(new, turn)

    @contextmanager
    def _alone_if_retry(self, new: NewRun, turn: Turn) -> Iterator[None]:
        """One retry of a chain is active at a time; while one is created, no other is.
        ``NotRunnable``."""
        retry_of = new.snapshot.retry_of
        if retry_of is None:
            yield
            return
        with OpenFile(self._names.directory, os.O_RDONLY) as directory:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if not self._names.journal(new.snapshot.run_id).exists():
                self._check_no_retry(retry_of, turn)
            yield

    def _check_no_retry(self, retry_of: str, turn: Turn) -> None:
        with os.scandir(self._names.directory) as entries:
            ids = [run_id for entry in entries if (run_id := run_of_journal(entry.name))]
        runs: dict[str, RunSnapshot] = {}
        for run_id in ids:
            with suppress(RunNotFound, StoreIncompatible):
                runs[run_id] = self.look(run_id, turn).run
        root = _root(retry_of, runs)
        for run in runs.values():
            if run.retry_of is not None and not run.ended and _root(run.run_id, runs) == root:
                raise already_retried(retry_of, run.run_id, run.status, waits_for_approval(run))

    def _create(self, new: NewRun) -> Receipt | None:
        """``None`` if somebody else was faster."""
        new = storable(new.snapshot.run_id, new)
        run_id = new.snapshot.run_id
        at = self._clock.now()
        run = create(new, at)
        line = frame(encode_record(creation_record(new, run, at, self._next_order(at))))
        with create_file(self._names, run_id, line) as created:
            if not created:
                return None
            self._complete(new)
        return receipt(run, 1)

    def _complete(self, new: NewRun) -> None:
        """What belongs to a birth beside the journal itself."""
        run_id = new.snapshot.run_id
        try:
            if new.lease is not None:
                self._live.hold(run_id)
            sync_directory(self._names.directory)
        except BaseException:
            self._live.take_back(run_id)
            raise

    def _next_order(self, at: datetime) -> int:
        """Newest last, also when the clock stands still or steps back within this process."""
        with self._lock:
            self._newest_order = max(self._newest_order + 1, round(at.timestamp() * 1_000_000))
            return self._newest_order

    def _created_before(self, new: NewRun, turn: Turn) -> Receipt:
        run_id = new.snapshot.run_id
        with self._open_to_write(run_id, turn) as (fd, journal):
            first = journal.written().record(fd, 1)
            check_repeated(journal.run, first.write.update_id if first else None, new)
            if new.lease is not None and new.lease.owner_id == journal.run.owner_id:
                self._live.hold_unless_held(run_id)
            # Whoever wrote it may have died before it was durable; we answer for it now.
            sync(fd)
            sync_directory(self._names.directory)
            return receipt(journal.run, 1)

    def update(self, update: Update, turn: Turn) -> Receipt:
        with self._open_to_write(update.run_id, turn) as (fd, journal):
            before = journal.run
            update = storable(update.run_id, update)
            at = self._clock.now()
            circumstances = Circumstances(
                lease_live=before.owner_id is not None and self._live.is_held(update.run_id),
                applied_id=_applied_id(journal, fd, update.base_version),
            )
            applied = apply(before, update, at=at, circumstances=circumstances)
            if applied.effect is None:
                sync(fd)  # as above: what made it so may not be durable yet
            else:
                journal.append(fd, update_record(update, applied, at), applied.snapshot)
            if before.owner_id is not None and applied.snapshot.owner_id is None:
                with suppress(OSError):  # the write stands; the next store to open tidies up
                    self._live.drop(update.run_id)
            return receipt(applied.snapshot, applied.version)

    # Reading

    def look(self, run_id: str, turn: Turn) -> Look:
        with self._open_to_read(run_id, turn) as seen:
            run = present(seen.run, lease_live=seen.is_live, expires_at=None)
            return Look(run, seen.order, seen.identity)

    def is_live(self, run_id: str, turn: Turn) -> bool:
        with self._open_to_read(run_id, turn) as seen:
            return seen.is_live

    def events(self, run_id: str, after: Position, limit: int, turn: Turn) -> list[RecordedEvent]:
        found: list[RecordedEvent] = []
        with self._open_to_read(run_id, turn) as seen:
            for record in seen.written.records(seen.fd, after.version):
                found += (event for event in events_of(record) if event.position > after)
                if len(found) >= limit:
                    break
        return found[: max(limit, 1)]

    def definition(self, run_id: str, turn: Turn) -> str | None:
        with self._open_to_read(run_id, turn) as seen:
            first = seen.written.record(seen.fd, 1)
            return first.write.definition if first and isinstance(first.write, NewRun) else None

    # Beginning and end

    def tidy(self) -> None:
        """Remove what processes that were killed left lying around. It can wait for the next to
        open the store: a file that somebody has locked is left alone."""
        sweep_temporaries(self._names.directory)
        with os.scandir(self._names.directory) as entries:
            dead = [run_id for entry in entries if (run_id := run_of_live(entry.name))]
        for run_id in dead:
            with suppress(OSError, Locked):
                self._locked(run_id, self._live.remove_if_dead)

    def close(self) -> None:
        """Let go of every run; those that have not ended are dead from here on, also if somebody
        has a journal locked: then only the lock file, which nobody holds any more, is left over."""
        for run_id in self._live.ours():
            with suppress(OSError, Locked):
                self._locked(run_id, self._live.drop)
            self._live.let_go(run_id)

    def _locked(self, run_id: str, act: Callable[[str], None]) -> None:
        """Do it under the journal's lock, if there (still) is a journal. ``Locked``."""
        try:
            file = open_locked(self._names.journal(run_id), exclusive=True)
        except FileNotFoundError:
            act(run_id)
            return
        with file:
            act(run_id)

    # Means

    @contextmanager
    def _open_to_write(self, run_id: str, turn: Turn) -> Iterator[tuple[int, Journal]]:
        """The run's journal, locked and read to its end. ``RunNotFound``, ``Locked``."""
        with reported(self._path(run_id)):
            journal = self._journal(run_id)
            with journal.lock, self._lock_file(run_id, turn, exclusive=True) as fd:
                journal.catch_up(fd)
                self._tell_of(run_id, journal)
                yield fd, journal

    @contextmanager
    def _open_to_read(self, run_id: str, turn: Turn) -> Iterator[Seen]:
        """What the run's journal says, and nothing is locked. ``RunNotFound``, ``Locked``."""
        with reported(self._path(run_id)), ExitStack() as opened:
            journal = self._journal(run_id)
            with journal.lock:
                file = self._lock_file(run_id, turn, exclusive=False)
                fd = opened.enter_context(file)
                tail, is_held = journal.fetch(fd), self._live.is_held(run_id)
                file.unlock()
                journal.take_in(tail)
                self._tell_of(run_id, journal)
                run, order, identity = journal.run, journal.order, journal.identity(tail)
                written = journal.written()
            # By the lock that its process holds: such a lease has no hour at which it ends.
            is_live = run.owner_id is not None and is_held
            yield Seen(fd, run, is_live, order, identity, written)

    def _tell_of(self, run_id: str, journal: Journal) -> None:
        if journal.doubt is None:
            self._doubted.is_over(run_id)
        else:
            self._doubted.warn(run_id, journal.doubt)

    def _lock_file(self, run_id: str, turn: Turn, *, exclusive: bool) -> OpenFile:
        """Only with the journal's own lock: then whom it meets are other stores, and the threads
        of this one take turns without them."""
        path, gate = self._names.journal(run_id), self._names.gate(run_id)
        try:
            return turn.lock(path, gate, exclusive=exclusive)
        except FileNotFoundError:
            self._refuse(run_id)

    def _journal(self, run_id: str) -> Journal:
        """Of a run that is there: who asks for others drives nothing out of our memory."""
        if not self._path(run_id).exists():
            self._refuse(run_id)
        with self._lock:
            journal = self._journals.pop(run_id, None)
            if journal is None:
                journal = Journal(self._names.journal(run_id), run_id)
            self._journals[run_id] = journal
            while len(self._journals) > MAX_REPLAYED:
                self._journals.popitem(last=False)
            return journal

    def _path(self, run_id: str) -> Path:
        if not is_run_id(run_id):
            raise RunNotFound(run_id)
        return self._names.journal(run_id)

    def _refuse(self, run_id: str) -> NoReturn:
        """It is not there; but a store that is not there has not lost one run."""
        os.stat(self._names.directory)
        raise RunNotFound(run_id)


def _root(run_id: str, runs: Mapping[str, RunSnapshot]) -> str:
    """The run that its chain of retries begins with."""
    seen: set[str] = set()
    while run_id not in seen and run_id in runs and (retried := runs[run_id].retry_of) is not None:
        seen.add(run_id)
        run_id = retried
    return run_id


def _applied_id(journal: Journal, fd: int, base_version: int | None) -> str | None:
    """Asked only when the base is stale: whose write took its place."""
    if base_version is None or base_version >= journal.run.version:
        return None
    record = journal.written().record(fd, base_version + 1)
    return record.write.update_id if record else None
