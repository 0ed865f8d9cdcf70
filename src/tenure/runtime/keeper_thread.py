"""A keeper with a thread, an event loop and a line to the store of its own.

The thread is begun by the first look that is due: a process whose runs are over by then never has
one. It sleeps while nothing is held. It ends when it is told to, or when the loop that it keeps
for is gone; should it end otherwise, another takes its place, and what it could not renew in time
is given up by that loop, which needs no thread for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from tenure.cancelling import end
from tenure.ports.keeping import KeptApart, LeaseKeeping
from tenure.runtime.holdings import Holdings
from tenure.runtime.rounds import Rounds, Tell

_log = logging.getLogger("tenure.runtime")

NewRounds = Callable[[LeaseKeeping, Tell, asyncio.Event], Rounds]


class Apart:
    """Of the loop that drives the runs: all is called there."""

    def __init__(
        self, store: KeptApart, holdings: Holdings, new_rounds: NewRounds, pace: float
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._new_rounds = new_rounds
        self._pace = pace
        self._due: asyncio.TimerHandle | None = None
        self._thread: KeeperThread | None = None

    def begin(self, *, rested: bool) -> None:
        thread, loop = self._thread, asyncio.get_running_loop()
        if thread is not None and thread.keeps_for is not loop:
            thread.end()
            thread, rested = None, True
        if not rested:
            return
        if thread is not None:
            thread.begin()
        else:
            self._start_later(loop)

    def look_now(self) -> None:
        if self._due is not None:
            self._start()
        if self._thread is not None:
            self._thread.look_now()

    async def close(self) -> None:
        if self._due is not None:
            self._due.cancel()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
            if thread.keeps_for is asyncio.get_running_loop():  # else nobody can tell us
                await thread.ended.wait()

    def _start_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread = None
        self._due = loop.call_later(self._pace, self._start)

    def _start(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._holdings.rest():
            return
        loop = asyncio.get_running_loop()
        thread = KeeperThread(self._store, self._new_rounds, loop, self._gone)
        try:
            thread.start()
        except RuntimeError as error:  # the system has none left
            _log.warning("no thread to keep leases in, tried again: %s", error)
            self._start_later(loop)
            return
        self._thread = thread
        thread.begin()

    def _gone(self, thread: KeeperThread) -> None:
        thread.join()
        thread.ended.set()
        if thread is self._thread:  # nobody told it to end
            self._thread = None
            if not self._holdings.rest():
                self._start_later(asyncio.get_running_loop())


class KeeperThread:
    """``gone`` is called by the loop it keeps for, once nothing of it is left but its thread."""

    def __init__(
        self,
        store: KeptApart,
        new_rounds: NewRounds,
        keeps_for: asyncio.AbstractEventLoop,
        gone: Callable[[KeeperThread], None],
    ) -> None:
        self.keeps_for = keeps_for
        self.ended = asyncio.Event()
        self._store = store
        self._new_rounds = new_rounds
        self._gone = gone
        self._loop = asyncio.new_event_loop()
        self._wanted = asyncio.Event()
        self._look_now = asyncio.Event()
        self._rounds: Rounds | None = None
        self._serving: asyncio.Task[None] | None = None
        self._told_to_end = False
        self._ending: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="tenure-keeper", daemon=True)

    # From the loop it keeps for

    def start(self) -> None:
        """``RuntimeError`` if there can be no thread."""
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def begin(self) -> None:
        self._call(self._wanted.set)

    def look_now(self) -> None:
        self._call(self._look_now.set)

    def end(self) -> None:
        self._call(self._end)

    def join(self) -> None:
        self._thread.join()

    def _call(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # it has ended; ``gone`` is on its way
            self._loop.call_soon_threadsafe(act)

    # In the thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException:  # noqa: BLE001  nobody else would hear of it
            _log.exception("the thread that keeps leases has ended")
        finally:
            with suppress(RuntimeError):  # nobody is left to be told
                self.keeps_for.call_soon_threadsafe(self._gone, self)

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        if self._told_to_end:
            return
        async with self._store.keeping() as store:
            self._rounds = self._new_rounds(store, self._tell, self._look_now)
            while not self._told_to_end:
                await self._wanted.wait()
                self._wanted.clear()
                await self._rounds.go()

    def _tell(self, act: Callable[[], None]) -> None:
        try:
            self.keeps_for.call_soon_threadsafe(act)
        except RuntimeError:  # that loop was closed, and took its runs with it
            self._end()

    def _end(self) -> None:
        if self._serving is not None and self._ending is None:
            self._ending = self._loop.create_task(end(self._serving))
        self._told_to_end = True
        self._wanted.set()
        if self._rounds is not None:
            self._rounds.end()
