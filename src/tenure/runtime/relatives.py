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

One that never got past the door leaves what the run before it left. If another went on from there
that is no longer true, and who retries it is sent to the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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
_GAVE_WAY = "canceled before it began: "


class Relatives:
    """The runs that retry ``old``, or one it retries, or a retry of these."""

    def __init__(self, store: RunStateStore, old: RunSummary) -> None:
        self._store = store
        self.of = old.run_id
        self._old = old
        self._parents: dict[str, str | None] = {old.run_id: old.retry_of}

    async def check_none_goes_on(self) -> None:
        """``NotRunnable`` if one lives, or went on in place of ``old``: before anything is
        stored."""
        living = await self._living()
        if living:
            raise self.refusal(foremost(living))
        instead = await self._went_on_instead()
        if instead is not None:
            raise NotRunnable(
                self._old.run_id, f"never began, and {instead} went on instead: retry {instead}"
            )

    async def in_front_of(self, run_id: str) -> RunSummary | None:
        """For one that stands at the door: to whom it must give way; ``None`` if it may enter."""
        living: Sequence[RunSummary] = ()
        for _ in range(_LOOKS):
            living = await self._living(run_id)
            first = gives_way_to(run_id, living)
            if first is not None or not living:
                return first
            await pause(_BETWEEN_LOOKS)
        return foremost(living)

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
        ours = await self._line(self._old.run_id)
        return [
            run
            async for run in self._retries(_LIVING)
            if run.run_id != apart_from and not ours.keys().isdisjoint(await self._line(run.run_id))
        ]

    async def _went_on_instead(self) -> str | None:
        """If ``old`` retries a run and never began: the newest of those that did, from there."""
        start = await self._begun_before()
        if start is not None:
            async for run in self._retries(frozenset()):
                if run.started_at and run.run_id != start and start in await self._line(run.run_id):
                    return run.run_id
        return None

    async def _begun_before(self) -> str | None:
        """The nearest of the runs that ``old`` goes back to of which anything began."""
        if self._old.started_at is not None:
            return None
        for run_id in list(await self._line(self._old.run_id))[1:]:
            run = await self._found(run_id)
            if run is None or run.started_at is not None:
                return run_id
        return None

    async def _retries(self, statuses: frozenset[RunStatus]) -> AsyncIterator[RunSummary]:
        """Of this workflow, the newest first."""
        where = RunFilter(statuses=statuses, workflow_name=self._old.workflow_name)
        cursor = None
        while True:
            page = await surely(partial(self._store.list_runs, where, limit=_PAGE, cursor=cursor))
            for run in page.items:
                if run.retry_of is not None:
                    self._parents[run.run_id] = run.retry_of
                    yield run
            cursor = page.cursor
            if cursor is None:
                return

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
        run = await self._found(run_id)
        return None if run is None else run.retry_of

    async def _found(self, run_id: str) -> RunSummary | None:
        try:
            return await surely(partial(self._store.get_run, run_id))
        except RunNotFound:
            return None


def gave_way(first: RunSummary) -> str:
    """For the record."""
    return f"{_GAVE_WAY}{first.run_id} retries the same run"


def has_given_way(run: RunSummary) -> bool:
    return run.status is RunStatus.CANCELED and (run.message or "").startswith(_GAVE_WAY)


def gives_way_to(run_id: str, living: Sequence[RunSummary]) -> RunSummary | None:
    """Which of its living relatives comes before one that stands at the door."""
    first = foremost(living) if living else None
    if first is not None and (first.status is RunStatus.RUNNING or first.run_id < run_id):
        return first
    return None


def foremost(living: Sequence[RunSummary]) -> RunSummary:
    """To whom the others give way: who waits is sent to nobody that does so itself."""
    return min(living, key=lambda run: (run.status is not RunStatus.RUNNING, run.run_id))
