"""Which queue a run is in, for tokens that may touch only some."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from tenure.gateway.roles import Caller
from tenure.model.errors import RunNotFound
from tenure.model.update import Fencing
from tenure.ports.run_store import RunStateStore

_MOST = 10_000
_FRESH = 60.0
"""Seconds."""


class _Seen(NamedTuple):
    queue: str
    at: float


class QueuesOfRuns:
    """A run stays in its queue while it has this owner, so the record is read now and then, not for
    each update. It is read for everybody else: a run that was forgotten may have been created anew
    under the same id, in another queue."""

    def __init__(self, store: RunStateStore) -> None:
        self._store = store
        self._known: OrderedDict[tuple[str, Fencing], _Seen] = OrderedDict()

    async def reaches(self, caller: Caller, run_id: str, fencing: Fencing) -> bool:
        """Of a queue that is not the caller's nobody says whether the run is there."""
        if caller.queues is None:
            return True
        try:
            return caller.may_touch(await self._queue_of(run_id, fencing))
        except RunNotFound:
            return False

    async def _queue_of(self, run_id: str, fencing: Fencing) -> str:
        now = asyncio.get_running_loop().time()
        seen = self._known.get((run_id, fencing))
        if seen is not None and now - seen.at < _FRESH:
            return seen.queue
        run = await self._store.get_run(run_id)
        if (run.owner_id, run.fence) == (fencing.owner_id, fencing.fence):
            self._keep((run_id, fencing), _Seen(run.queue, now))
        return run.queue

    def _keep(self, key: tuple[str, Fencing], seen: _Seen) -> None:
        self._known[key] = seen
        self._known.move_to_end(key)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
