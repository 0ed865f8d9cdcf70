"""Load as much of a run as one update concerns, and no more.

That is the run's own row, the steps and hosts the update names and, if it ends a run that has
something running, the running ones: what ``apply`` asks for.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.model.errors import InvalidTransition
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import TERMINAL_RUN, HostStatus, StepStatus
from tenure.model.update import Effect, HostChange, StepChange
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
            self._add_running(head, steps)
        if steps:
            fields["steps"] = tuple(steps.values())
        return replace(run, **fields) if fields else run

    def _step(self, head: Head, index: int, change: StepChange) -> StepState | None:
        """``None`` for a step this update adds behind the last one."""
        row = self._sql.first("step", head.seq, index)
        total = head.run.counts.steps_total
        if row is None and not 0 <= index < total:
            if change.plan is not None and index == total:
                return None
            raise InvalidTransition(
                head.run.run_id, f"has no step {index}; a new one needs its plan"
            )
        step = StepState(index=index) if row is None else rows.step_of(row[0])
        if not change.hosts:
            return step
        hosts = {
            name: self._host(head.seq, index, name, host) for name, host in change.hosts.items()
        }
        return replace(step, hosts=hosts)

    def _host(self, seq: int, step: int, name: str, change: HostChange) -> HostState:
        row = self._sql.first("host", seq, step, name)
        host = HostState() if row is None else rows.host_of(row[0])
        return self._with_items(host, seq, step, name) if change.items else host

    def _with_items(self, host: HostState, seq: int, step: int, name: str) -> HostState:
        items = self._sql.all("items_of_host", seq, step, name)
        return replace(host, items=tuple(rows.item_of(body) for (body,) in items))

    def _add_running(self, head: Head, steps: dict[int, StepState]) -> None:
        """What the end of the run cuts short, over and above what the update names."""
        counts = head.run.counts
        if StepStatus.RUNNING in counts.steps:
            for index, body in self._sql.all("running_steps", head.seq):
                steps.setdefault(index, rows.step_of(body))
        if HostStatus.RUNNING not in counts.hosts:
            return
        for index, name, body in self._sql.all("running_hosts", head.seq):
            step = steps.get(index)
            if step is None:
                row = self._sql.one("step", head.seq, index)
                step = rows.step_of(row[0])
            if name not in step.hosts:
                host = self._with_items(rows.host_of(body), head.seq, index, name)
                step = replace(step, hosts={**step.hosts, name: host})
            steps[index] = step
