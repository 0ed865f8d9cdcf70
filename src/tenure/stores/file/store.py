"""The file store as asyncio sees it: every call is one piece of work in a thread, done again after
a pause while another process has the run locked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from tenure.model.codec import copied
from tenure.model.errors import StoreUnavailable
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.update import NewRun, Position, Receipt, RecordedEvent, Update
from tenure.ports.environment import Clock
from tenure.stores.file.disk import Locked, make_directory, reported
from tenure.stores.file.listing import Choice, Listing
from tenure.stores.file.names import Names
from tenure.stores.file.patience import READ_PATIENCE, WRITE_PATIENCE, Patience
from tenure.stores.file.runs import FileRuns
from tenure.stores.file.turn import Turn
from tenure.stores.place import absolute
from tenure.system import SystemClock

T = TypeVar("T")

_THREADS = 4


class FileStore:
    """``RunStateStore``, ``EventLog``, ``Definitions`` and ``LiveRuns`` in a directory.

    For one machine and small histories: no workers, no leases that expire, no durable callbacks.
    Any number of processes may share the directory. A run born with an owner counts as live
    for as long as the store object that created it is open and its process exists; the seconds
    of the lease it asked for play no part. A forked child opens its own: this one refuses it, and
    stays its parent's.
    """

    durable = True

    def __init__(self, directory: str | os.PathLike[str], clock: Clock | None = None) -> None:
        names = Names(absolute(directory))
        make_directory(names.directory)
        self._runs = FileRuns(names, clock or SystemClock())
        self._listing = Listing(names, self._runs)
        self._patience = Patience()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tenure-file")
        self._directory = names.directory
        self._tidy_lock = threading.Lock()
        self._tidied = False
        self._closed = False
        self._pid = os.getpid()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._in_turn(WRITE_PATIENCE, lambda turn: self._runs.create(new, turn))

    async def update_run(self, update: Update) -> Receipt:
        return await self._in_turn(WRITE_PATIENCE, lambda turn: self._runs.update(update, turn))

    async def get_run(self, run_id: str) -> RunSnapshot:
        return await self._in_turn(
            READ_PATIENCE, lambda turn: copied(self._runs.look(run_id, turn).run)
        )

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        choice = Choice(where, limit, cursor)
        gathered = await self._in_turn(READ_PATIENCE, self._listing.gather)
        # Counted from here: to look at all files may take longer than one of them is waited for.
        return await self._in_turn(READ_PATIENCE, lambda turn: gathered.page(choice, turn))

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        return await self._in_turn(
            READ_PATIENCE, lambda turn: self._runs.events(run_id, after, limit, turn)
        )

    async def get_definition(self, run_id: str) -> str | None:
        return await self._in_turn(READ_PATIENCE, lambda turn: self._runs.definition(run_id, turn))

    async def is_live(self, run_id: str) -> bool:
        return await self._in_turn(READ_PATIENCE, lambda turn: self._runs.is_live(run_id, turn))

    async def close(self) -> None:
        """Waits for what is under way, then lets go of the runs this store holds. What waits for
        another process is refused after a moment.

        Runs that have not ended are dead from here on: reconcile will find them, once it sees
        this process no more.
        """
        if self._is_forked:
            return  # threads and runs stayed with the parent
        self._closed = True
        await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        self._patience.end()
        self._threads.shutdown()
        self._runs.close()

    async def _in_turn(self, seconds: float, work: Callable[[Turn], T]) -> T:
        if self._closed or self._is_forked:
            raise self._refusal()
        with Turn(self._patience, seconds) as turn:
            while True:
                try:
                    return await self._in_thread(lambda: self._tidily(lambda: turn.look(work)))
                except Locked:
                    await asyncio.sleep(turn.pause())  # noqa: TID251 - the system tells nobody

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            answer = self._threads.submit(work)
        except RuntimeError:
            raise self._refusal() from None
        return await asyncio.wrap_future(answer)

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _refusal(self) -> StoreUnavailable:
        forked = "was opened before the process forked; open it anew"
        why = forked if self._is_forked else "is closed; open another"
        return StoreUnavailable(f"{self._directory}: this store object {why}")

    def _tidily(self, work: Callable[[], T]) -> T:
        with self._tidy_lock:
            if not self._tidied:
                with reported(self._directory):
                    self._runs.tidy()
                self._tidied = True
        return work()
