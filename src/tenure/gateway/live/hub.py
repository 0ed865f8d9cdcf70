"""All that is looked at in this process, and by how many."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

from tenure.gateway.live.feed import AllRuns, view_all
from tenure.gateway.live.journals import RunJournal, all_of_version
from tenure.gateway.live.outputs import TaskOutput
from tenure.gateway.live.rounds import EVERY, Rounds
from tenure.gateway.live.surveying import Survey
from tenure.gateway.live.viewing import view
from tenure.gateway.live.watched import Part
from tenure.model.events import Position
from tenure.model.snapshot import RunSnapshot
from tenure.ports.change_feed import ChangeFeed
from tenure.ports.event_log import EventLog
from tenure.ports.log_store import LogKey, LogStore
from tenure.ports.run_store import RunStateStore


class Live:
    """``clock`` counts seconds; ``every`` so many of them the store is asked for news, as long as
    somebody looks."""

    def __init__(
        self, store: RunStateStore, clock: Callable[[], float], *, every: float = EVERY
    ) -> None:
        self._store = store
        self._rounds = Rounds(Survey(store), clock, every)

    @property
    def idle(self) -> bool:
        """Whether nobody looks, and nothing is asked."""
        return self._rounds.idle

    async def run(
        self, log: EventLog, run: RunSnapshot, after: Position
    ) -> AsyncGenerator[Part[Position], None]:
        """What happens to ``run`` behind ``after``, until it has ended."""
        make = partial(RunJournal, log, run, after)
        async with (
            self._rounds.viewing(_journal_key(run), make) as journal,
            aclosing(view(journal, after)) as parts,
        ):
            async for part in parts:
                yield part

    async def all_runs(
        self, feed: ChangeFeed, cursor: str | None
    ) -> AsyncGenerator[Part[str], None]:
        """What happens to all runs behind ``cursor``; ``None``: from the beginning."""
        async with (
            self._rounds.viewing("all runs", partial(AllRuns, feed)) as runs,
            aclosing(view_all(runs, cursor, self._rounds.hurry)) as parts,
        ):
            async for part in parts:
                yield part

    async def output(
        self, logs: LogStore, run: RunSnapshot, key: LogKey, offset: int
    ) -> AsyncGenerator[Part[int], None]:
        """What a task prints behind ``offset``, until it has ended."""
        if not isinstance(self._store, EventLog):
            async with aclosing(self._printed(logs, run, key, offset, None)) as parts:
                async for part in parts:
                    yield part
            return
        make = partial(RunJournal, self._store, run, all_of_version(run.version))
        async with (
            self._rounds.viewing(_journal_key(run), make) as journal,
            aclosing(self._printed(logs, run, key, offset, journal)) as parts,
        ):
            async for part in parts:
                yield part

    async def _printed(
        self,
        logs: LogStore,
        run: RunSnapshot,
        key: LogKey,
        offset: int,
        journal: RunJournal | None,
    ) -> AsyncGenerator[Part[int], None]:
        make = partial(TaskOutput, self._store, logs, journal, run.run_id, key, offset)
        async with (
            self._rounds.viewing(("output", run.run_id, key), make) as output,
            aclosing(view(output, offset)) as parts,
        ):
            async for part in parts:
                yield part


def _journal_key(run: RunSnapshot) -> tuple[str, str, int | None]:
    """On a run that has ended something may still be noted: then it is read anew."""
    return "run", run.run_id, run.version if run.ended else None
