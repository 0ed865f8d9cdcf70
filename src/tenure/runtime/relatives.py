"""One retry at a time: two of one lineage would both do what is left.

No store has a lock for that, and none is needed: whoever lists runs sees every run that was
created before. So a retry is born at the door: ``queued``, owned, nothing of it begun. Then it
looks for living relatives:

* none: it enters. Whoever is created later sees it until it has ended.
* one that runs, or one at the door with a smaller id: it gives way, and ends as canceled.
* only ones at the door with larger ids: these give way if they have seen it, and run if they had
  looked before it was there. It waits until they have done one or the other.

So never do two enter, whatever the clocks say, and of those who meet at the door one does. Nobody
waits for long: who finds the door still taken gives way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tenure.model.approving import waits_for_approval
from tenure.model.errors import NotRunnable, RunNotFound
from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.status import RunStatus
from tenure.ports.run_store import RunStateStore
from tenure.runtime.patience import surely
from tenure.runtime.waiting import pause

_LIVING = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
_LOOKS = 100
_BETWEEN_LOOKS = 0.05
_PAGE = 500


class Relatives:
    """The runs that retry ``old``, or one it retries, or a retry of these."""

    def __init__(self, store: RunStateStore, old: RunSummary) -> None:
        self._store = store
        self._old = old
        self._parents: dict[str, str | None] = {old.run_id: old.retry_of}

    async def check_none_lives(self) -> None:
        """``NotRunnable`` if one does: before anything is stored."""
        living = await self._living()
        if living:
            raise self.refusal(living[0])

    async def in_front_of(self, run_id: str) -> RunSummary | None:
        """For one that stands at the door: to whom it must give way; ``None`` if it may enter."""
        living: Sequence[RunSummary] = ()
        for _ in range(_LOOKS):
            living = await self._living(run_id)
            first = gives_way_to(run_id, living)
            if first is not None or not living:
                return first
            await pause(_BETWEEN_LOOKS)
        return living[0]

    def refusal(self, other: RunSummary) -> NotRunnable:
        name = other.run_id
        if waits_for_approval(other):
            todo = f"approve it (tenure approve {name}) or cancel it (tenure cancel {name})"
        else:
            todo = f"wait for it (tenure watch {name}) or end it (tenure cancel {name})"
        return NotRunnable(
            self._old.run_id, f"{name} retries it and is {other.status}: {todo}, then retry {name}"
        )

    async def _living(self, apart_from: str | None = None) -> list[RunSummary]:
        where = RunFilter(statuses=_LIVING, workflow_name=self._old.workflow_name)
        found: list[RunSummary] = []
        cursor = None
        while True:
            page = await surely(partial(self._store.list_runs, where, limit=_PAGE, cursor=cursor))
            retries = (run for run in page.items if run.retry_of and run.run_id != apart_from)
            found += [run for run in retries if await self._is_ours(run)]
            cursor = page.cursor
            if cursor is None:
                return found

    async def _is_ours(self, run: RunSummary) -> bool:
        self._parents[run.run_id] = run.retry_of
        ours = await self._line(self._old.run_id)
        return any(each in ours for each in await self._line(run.run_id))

    async def _line(self, run_id: str | None) -> dict[str, None]:
        """The run, the one it retries, and so on, as far as they are there."""
        line: dict[str, None] = {}
        while run_id is not None and run_id not in line:
            line[run_id] = None
            if run_id not in self._parents:
                self._parents[run_id] = await self._parent(run_id)
            run_id = self._parents[run_id]
        return line

    async def _parent(self, run_id: str) -> str | None:
        try:
            return (await surely(partial(self._store.get_run, run_id))).retry_of
        except RunNotFound:
            return None


def gave_way(first: RunSummary) -> str:
    """For the record."""
    return f"canceled before it began: {first.run_id} retries the same run"


def gives_way_to(run_id: str, living: Sequence[RunSummary]) -> RunSummary | None:
    """Which of its living relatives comes before one that stands at the door."""
    return next(
        (run for run in living if run.status is RunStatus.RUNNING or run.run_id < run_id), None
    )
