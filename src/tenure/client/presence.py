"""Being there, and being told: ``WorkerRegistry`` and ``Wakeups``."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from tenure.cancelling import end
from tenure.client.line import Line, encoded, part
from tenure.model.errors import NotPermitted, NotSupported, TenureError
from tenure.model.retry import RetryPolicy
from tenure.ports.workers import WorkerInfo
from tenure.runtime.waiting import pause
from tenure.wire.listings import Workers
from tenure.wire.presence import Heartbeat, Wakeup, WakeupRequest

_log = logging.getLogger("tenure.client")

_AGAIN = RetryPolicy(attempts=2**62, delay=0.2, backoff=2.0, max_delay=10.0, jitter=0.5)


class PresenceOverHttp:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        path = f"/v1/workers/{part(worker.owner_id)}"
        if not seconds:
            await self._line.ask("DELETE", path, dict)
            return
        said = Heartbeat(
            seconds=seconds,
            queues=worker.queues,
            concurrency=worker.concurrency,
            running=worker.running,
            draining=worker.draining,
            details=worker.details,
        )
        await self._line.ask("POST", path, dict, body=encoded(said))

    async def list_workers(self) -> list[WorkerInfo]:
        found = await self._line.ask("GET", "/v1/workers", Workers)
        return [
            WorkerInfo(
                owner_id=each.owner_id,
                queues=each.queues,
                concurrency=each.concurrency,
                running=each.running,
                draining=each.draining,
                details=each.details,
                seen_at=each.seen_at,
            )
            for each in found.workers
        ]

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Asks and asks again. Nothing is lost between two questions, as long as they reach the
        same gateway; of a store that wakes nobody nothing is heard."""
        listening = asyncio.create_task(self._listen(sorted(topics), heard))
        try:
            yield
        finally:
            await end(listening)

    async def _listen(self, topics: list[str], heard: Callable[[], None]) -> None:
        after: str | None = None
        failures = 0
        while True:
            try:
                said = await self._ask(topics, after)
            except (NotPermitted, NotSupported) as error:
                _log.debug("no hints: %s", error)
                return
            except TenureError as error:
                _log.debug("hints are not heard: %s", error)
                failures += 1
                after = None
                await pause(_AGAIN.wait_after(failures, luck=random.random()) or 0.0)  # noqa: S311
                continue
            failures = 0
            if said != after:
                after = said
                heard()

    async def _ask(self, topics: list[str], after: str | None) -> str:
        asked = WakeupRequest(topics=tuple(topics), after=after)
        answer = await self._line.ask(
            "POST", "/v1/wakeups", Wakeup, body=encoded(asked), wait=asked.wait, apart=True
        )
        return answer.after
