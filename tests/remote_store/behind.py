"""What stands behind a gateway in tests: fresh for each, and quickly there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Self

from tenure.ports.clock import Clock
from tenure.stores.sqlite import SQLiteStore


class SQLiteFiles:
    """To make one, and to see it on the disk, takes longer than most of what a test does with it:
    so they are copies of one that is empty."""

    def __init__(self, empty: Path) -> None:
        self._empty = empty
        self._numbers = count(1)

    @classmethod
    async def in_folder(cls, folder: Path) -> Self:
        empty = folder / "empty.db"
        await (await SQLiteStore.open(empty)).close()
        return cls(empty)

    @asynccontextmanager
    async def opened(self, clock: Clock) -> AsyncIterator[SQLiteStore]:
        path = self._empty.with_name(f"{next(self._numbers)}.db")
        shutil.copy(self._empty, path)
        store = await SQLiteStore.open(path, clock=clock)
        try:
            yield store
        finally:
            await store.close()
