"""Which queue a run is in, for tokens that may touch only some."""

from __future__ import annotations

from collections import OrderedDict

from tenure.gateway.roles import Caller
from tenure.model.errors import RunNotFound
from tenure.ports.run_store import RunStateStore

_MOST = 10_000


class QueuesOfRuns:
    """A run stays in its queue, so the record is read once, not for each update of its owner."""

    def __init__(self, store: RunStateStore) -> None:
        self._store = store
        self._known: OrderedDict[str, str] = OrderedDict()

    async def check_reaches(self, caller: Caller, run_id: str) -> None:
        """Of a queue that is not the caller's nobody says whether it is there: ``RunNotFound``."""
        if not await self.reaches(caller, run_id):
            raise RunNotFound(run_id)

    async def reaches(self, caller: Caller, run_id: str) -> bool:
        if caller.queues is None:
            return True
        try:
            return caller.may_touch(await self._queue_of(run_id))
        except RunNotFound:
            return False

    async def _queue_of(self, run_id: str) -> str:
        queue = self._known.get(run_id)
        if queue is None:
            queue = self._known[run_id] = (await self._store.get_run(run_id)).queue
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return queue
