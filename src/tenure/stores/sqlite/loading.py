"""Load as much of a run as one update concerns, and no more.

Which that is, ``model.apply`` says.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, TERMINAL_RUN, HostStatus, StepStatus
from tenure.model.update import Effect, StepChange
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements


class Loading:
    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def find(self, run_id: str) -> Head | None:
        row = self._sql.first("head_by_id", run_id)
        return rows.head_of(row) if row else None

    def head(self, seq: int) -> Head:
        return rows.head_of(self._sql.one("head_by_seq", seq))

    def update_id_of(self, seq: int, version: int) -> str | None:
        row = self._sql.first("update_id_of", seq, version)
        return row[0] if row else None

    def for_effect(self, head: Head, effect: Effect) -> RunSnapshot:
        """The run with what ``effect`` concerns. Left out means pending, or already ended."""
        run, changes = head.run, effect.changes
        fields: dict[str, Any] = {}
        if effect.deliveries:
            (callbacks,) = self._sql.one("callbacks", head.seq)
            fields["callbacks"] = rows.callbacks_of(callbacks)
        steps: dict[int, StepState] = {}
        for index, change in changes.steps.items():
            step = self._step(head, index, change)
            if step is not None:
                steps[index] = step
        if changes.run.status in TERMINAL_RUN and not run.ended:
            self._add_unsettled(head, steps)
        if steps:
            fields["steps"] = tuple(steps.values())
        return replace(run, **fields) if fields else run

    def _step(self, head: Head, index: int, change: StepChange) -> StepState | None:
        """``None`` for a step that is not there; whether it may be added is not decided here."""
        row = self._sql.first("step", head.seq, index)
        if row is None and not 0 <= index < head.run.counts.steps_total:
            return None
        step = StepState(index=index) if row is None else rows.step_of(row[0])
        hosts = {name: self._host(head.seq, index, name) for name in change.hosts}
        if change.status in ENDED_STEP:
            for name, body, items in self._sql.all("running_hosts_of_step", head.seq, index):
                if name not in hosts:
                    hosts[name] = self._host_of(body, items, head.seq, index, name)
        return replace(step, hosts=hosts) if hosts else step

    def _host(self, seq: int, step: int, name: str) -> HostState:
        row = self._sql.first("host", seq, step, name)
        return HostState() if row is None else self._host_of(row[0], row[1], seq, step, name)

    def _host_of(self, body: str, items: int, seq: int, step: int, name: str) -> HostState:
        host = rows.host_of(body)
        if not items:
            return host
        found = self._sql.all("items_of_host", seq, step, name)
        return replace(host, items=tuple(rows.item_of(text) for (text,) in found))

    def _add_unsettled(self, head: Head, steps: dict[int, StepState]) -> None:
        """What the end of the run closes, over and above what the update names."""
        counts = head.run.counts
        if StepStatus.RUNNING in counts.steps:
            for index, body in self._sql.all("running_steps", head.seq):
                steps.setdefault(index, rows.step_of(body))
        if HostStatus.RUNNING not in counts.hosts and HostStatus.UNKNOWN not in counts.hosts:
            return
        for index, name, body, items in self._sql.all("unsettled_hosts", head.seq):
            step = steps.get(index) or rows.step_of(self._sql.one("step", head.seq, index)[0])
            if name not in step.hosts:
                host = self._host_of(body, items, head.seq, index, name)
                step = replace(step, hosts={**step.hosts, name: host})
            steps[index] = step
