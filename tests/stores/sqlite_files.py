"""SQLite stores for tests that are about something else than disks: fresh for each, and quick."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw

from tenure.ports.environment import Clock
from tenure.stores.sqlite import SQLiteStore
from tenure.stores.sqlite.connection import connect


class SQLiteFiles:
    """To make one takes longer than most of what a test does with it: so they are copies of one
    that is empty. Nor do they wait for the disk, which is longer still. What waiting is good for
    is seen where writers are killed and disks are full (``tests/system``)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty = folder / "empty.db"
        self._numbers = count(1)
        asyncio.run(_made(self._empty))

    @asynccontextmanager
    async def opened(self, clock: Clock) -> AsyncIterator[SQLiteStore]:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        path = shutil.copy(self._empty, folder / "runs.db")
        with patch("tenure.stores.sqlite.connection.connect", _hasty):
            store = await SQLiteStore.open(path, clock=clock)
            await store.revoke_token("none")  # the writer's connection, too
        async with store:
            yield store
        shutil.rmtree(folder)


def _hasty(*arguments: Any, **options: Any) -> apsw.Connection:
    connection = connect(*arguments, **options)
    connection.execute("pragma synchronous = off")
    return connection


async def _made(path: Path) -> None:
    await (await SQLiteStore.open(path)).close()
