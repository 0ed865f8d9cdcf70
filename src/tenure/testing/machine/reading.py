"""Rules that only read: pages, filters, history by position."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tenure.model.query import RunFilter
from tenure.model.snapshot import RunSummary
from tenure.model.status import RunStatus
from tenure.model.update import Position
from tenure.ports.leases import LeaseStore
from tenure.ports.store import EventLog
from tenure.testing.machine.draws import OWNERS, QUEUES, Draw
from tenure.testing.machine.ownership import check_order
from tenure.testing.machine.plain import check_same, plain
from tenure.testing.machine.rules import RunRules, can, has_runs
from tenure.testing.machine.runs import Run

_NOT_IN_SUMMARIES = ("vars", "callbacks", "steps")


class ReadRules(RunRules):
    def _filter(self, draw: Draw) -> RunFilter:
        """None or one of the conditions, seldom two."""
        some = [run.record["created_at"] for run in self.model.runs.values()]
        conditions: dict[str, Any] = {
            "statuses": frozenset(draw.some(tuple(RunStatus))),
            "workflow_name": "deploy",
            "queue": draw.one(QUEUES),
            "labels": {"team": draw.one(("web", "db"))},
            "created_from": draw.one(some),
            "created_to": draw.one(some),
            "owner_id": draw.one(OWNERS),
            "held": True,
            "canceling": True,
            "unapproved": True,
        }
        chosen = draw(st.lists(st.sampled_from(sorted(conditions)), max_size=2, unique=True))
        return RunFilter(**{name: conditions[name] for name in chosen})

    @precondition(has_runs)
    @rule(data=st.data(), limit=st.sampled_from((1, 2, 50)))
    def list_all(self, data: st.DataObject, limit: int) -> None:
        where = self._filter(Draw(data))
        expected = [run for run in self.model.runs.values() if _matches(run, where)]
        found = self._pages("list_runs", where, limit)
        self._check_summaries(expected, found)
        for newer, older in pairwise(found):
            number = {name: run.number for name, run in self.model.runs.items()}
            later = newer.created_at and older.created_at and newer.created_at > older.created_at
            assert later or number[newer.run_id] > number[older.run_id], "not newest first"

    @precondition(can(LeaseStore))
    @rule(data=st.data(), limit=st.sampled_from((1, 2, 50)))
    def list_claimable(self, data: st.DataObject, limit: int) -> None:
        where = self._filter(Draw(data))
        expected = [run for run in self.model.listed_runnable() if _matches(run, where)]
        found = self._pages("list_runnable", where, limit)
        self._check_summaries(expected, found)
        check_order(self.model.runs[summary.run_id] for summary in found)

    def _pages(self, method: str, where: RunFilter, limit: int) -> list[RunSummary]:
        page = self.ask(method, where, limit=limit)
        found = list(page.items)
        while page.cursor is not None:
            assert len(page.items) == limit, "a short page that is not the last"
            page = self.ask(method, where, limit=limit, cursor=page.cursor)
            found += page.items
        return found

    def _check_summaries(self, expected: list[Run], found: list[RunSummary]) -> None:
        names = [summary.run_id for summary in found]
        assert len(set(names)) == len(names), "a run is on two pages"
        check_same("listed runs", sorted(run.record["run_id"] for run in expected), sorted(names))
        for summary in found:
            read = self.as_read(self.model.runs[summary.run_id])
            short = {name: read[name] for name in read if name not in _NOT_IN_SUMMARIES}
            check_same(f"summary of {summary.run_id}", short, plain(summary))

    @precondition(can(EventLog))
    @rule(data=st.data(), limit=st.integers(1, 4))
    def follow(self, data: st.DataObject, limit: int) -> None:
        """A viewer who comes back asks for what is newer than the last it saw."""
        run = self.a_run(Draw(data))
        places = [(event["version"], event["seq"]) for event in run.events]
        seen = [(0, -1), *places]
        after = Draw(data).one(seen)
        events = self.ask("read_events", run.record["run_id"], Position(*after), limit=limit)
        wanted = [place for place in places if place > after][:limit]
        assert [tuple(event.position) for event in events] == wanted


def _matches(run: Run, where: RunFilter) -> bool:
    record = run.record
    asks = record["approval"]["required"] and record["approval"]["at"] is None
    return (
        (not where.statuses or record["status"] in where.statuses)
        and where.workflow_name in (None, record["workflow_name"])
        and where.queue in (None, record["queue"])
        and where.owner_id in (None, record["owner_id"])
        and (not (where.held or where.canceling) or record["owner_id"] is not None)
        and (not where.canceling or record["cancel_requested_at"] is not None)
        and (not where.unapproved or (asks and record["status"] == "queued"))
        and where.labels.items() <= record["labels"].items()
        and (where.created_from is None or record["created_at"] >= where.created_from)
        and (where.created_to is None or record["created_at"] < where.created_to)
    )
