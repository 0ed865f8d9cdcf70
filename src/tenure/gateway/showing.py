"""Runs as they are shown, put into words once: for all who ask until something changes."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from tenure.model.snapshot import RunSnapshot
from tenure.wire.full import shown_as

MOST_BYTES = 32 << 20


class _Page(NamedTuple):
    mark: str
    body: bytes


class Pages:
    """The newest of each run, by its mark (``RunMarks``); those that were not asked for longest
    make room."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    def find(self, run_id: str, mark: str) -> bytes | None:
        page = self._pages.get(run_id)
        if page is None or page.mark != mark:
            return None
        self._pages.move_to_end(run_id)
        return page.body

    def keep(self, run_id: str, mark: str, body: bytes) -> None:
        """``mark`` was there before what ``body`` shows was read: if the run changed in between,
        nobody will find this."""
        self._drop(run_id)
        if len(body) > self._most // 4:
            return
        self._pages[run_id] = _Page(mark, body)
        self._bytes += len(body)
        while self._bytes > self._most:
            self._drop(next(iter(self._pages)))

    def _drop(self, run_id: str) -> None:
        page = self._pages.pop(run_id, None)
        if page is not None:
            self._bytes -= len(page.body)


def written(run: RunSnapshot) -> bytes:
    return msgspec.json.encode(shown_as(RunSnapshot, run))
