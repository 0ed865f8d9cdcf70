"""The runs that this process executes now."""

from __future__ import annotations

import asyncio

from tenure.model.snapshot import RunSnapshot
from tenure.runtime.about import about
from tenure.runtime.embedded import EmbeddedRun, Surroundings, Work
from tenure.runtime.patience import surely
from tenure.runtime.session import Session


class Executions:
    def __init__(self) -> None:
        self._runs: set[EmbeddedRun] = set()
        self._last_ended: asyncio.Event | None = None

    async def perform(self, session: Session, around: Surroundings, work: Work) -> RunSnapshot:
        """To the end; the record as it then is."""
        run = EmbeddedRun(session, around, work)
        self._runs.add(run)
        try:
            with about(work.planned.run_id):
                await run.execute()
            last = session.last_record(work.planned.run_id)
            if last is not None:
                return last
            return await surely(lambda: session.store.get_run(work.planned.run_id))
        finally:
            self._runs.discard(run)
            if self._last_ended is not None and not self._runs:
                self._last_ended.set()

    async def stop(self) -> None:
        """End those that have not ended, as canceled."""
        if self._runs:
            self._last_ended = asyncio.Event()
            for run in self._runs:
                run.stop()
            await self._last_ended.wait()
