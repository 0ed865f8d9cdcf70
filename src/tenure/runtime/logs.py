"""Full output into the log, as it comes: under the owner's fence, in order, up to a cap."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenure.model.errors import LeaseLost, TenureError
from tenure.model.update import Fencing
from tenure.ports.log_store import LogKey, LogStore
from tenure.runtime.patience import ENDLESS, surely

_log = logging.getLogger("tenure.runtime")


class LogWriter:
    """The streams of one attempt. A store that is away holds the task's pipe, not our memory. One
    that cannot keep the output costs the log, never the task its result: the tails remain."""

    def __init__(
        self,
        store: LogStore,
        run_id: str,
        fencing: Fencing,
        key_of: Callable[[str], LogKey],
        cap: int,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._fencing = fencing
        self._key_of = key_of
        self._cap = cap
        self._written: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._unsure: dict[str, bytes] = {}
        """Sent by a task that was cancelled before it was answered."""
        self._broken = False

    async def keep(self, stream: str, data: bytes) -> None:
        """``LeaseLost`` ends the task: its output is another owner's business now."""
        written = self._written.get(stream, 0)
        kept = data[: max(self._cap - written, 0)]
        if len(kept) < len(data):
            self._dropped[stream] = self._dropped.get(stream, 0) + len(data) - len(kept)
        if kept:
            await self._append(stream, kept)

    async def close(self) -> None:
        """Say what was dropped, where it is missing."""
        for stream in tuple(self._unsure):
            await self._send(stream)
        for stream, dropped in self._dropped.items():
            await self._append(stream, b"\n[tenure: %d more bytes were dropped here]\n" % dropped)

    async def _append(self, stream: str, data: bytes) -> None:
        if stream in self._unsure:
            await self._send(stream)
        self._unsure[stream] = data
        await self._send(stream)

    async def _send(self, stream: str) -> None:
        if self._broken:
            return
        offset, data, key = self._written.get(stream, 0), self._unsure[stream], self._key_of(stream)
        try:
            self._written[stream] = await surely(
                lambda: self._store.append(self._run_id, self._fencing, key, offset, data),
                ENDLESS,
            )
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001  somebody else's store may raise anything
            self._give_up(error)
        del self._unsure[stream]

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        _log.warning(
            "run %s: the log of a task ends here, its store cannot go on with it (%s: %s)",
            self._run_id,
            type(error).__name__,
            error,
            exc_info=None if isinstance(error, TenureError) else error,
        )
