"""The stores one process uses, each opened once, however many ask for it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from tenure.model.errors import RunnerClosed
from tenure.ports.run_store import RunStateStore
from tenure.runtime.session import Session


class Sessions:
    """``open_main`` opens the store that is meant when none is named.

    Whoever asks for a session after ``refuse`` is refused: it would never be closed.
    """

    def __init__(
        self,
        open_main: Callable[[], Awaitable[RunStateStore]],
        new_session: Callable[[RunStateStore], Session],
    ) -> None:
        self._open_main = open_main
        self._new_session = new_session
        self._main: RunStateStore | None = None
        self._open: dict[int, Session] = {}
        self._opening = asyncio.Lock()
        self._refusing = False

    async def of(self, store: RunStateStore | None = None) -> Session:
        """``RunnerClosed``. Without ``store``, the main one's."""
        self.check_open()
        session = self._open.get(id(self._main if store is None else store))
        if session is None:
            async with self._opening:
                self.check_open()
                session = await self._opened(await self._main_store() if store is None else store)
            self.check_open()  # who closes has waited for us, and closes it now
        return session

    async def _main_store(self) -> RunStateStore:
        if self._main is None:
            self._main = await self._open_main()
        return self._main

    async def _opened(self, store: RunStateStore) -> Session:
        session = self._open.get(id(store))
        if session is None:
            session = self._new_session(store)
            await session.open()
            self._open[id(store)] = session
        return session

    def check_open(self) -> None:
        """``RunnerClosed``."""
        if self._refusing:
            raise RunnerClosed

    def welcome(self) -> None:
        """Take back ``refuse``."""
        self._refusing = False

    async def refuse(self) -> None:
        """Returns when nobody is opening anything any more."""
        self._refusing = True
        async with self._opening:
            pass

    async def close(self) -> None:
        """All of them, also if one cannot be closed. The stores themselves stay open."""
        open_ones, self._open, self._main = self._open, {}, None
        self._opening = asyncio.Lock()  # the next to ask may live in another event loop
        async with AsyncExitStack() as closing:
            for session in open_ones.values():
                closing.push_async_callback(session.close)
