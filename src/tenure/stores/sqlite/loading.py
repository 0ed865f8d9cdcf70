"""The run, with the steps and hosts that one update concerns: ``model.apply`` says which."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, TERMINAL_RUN
from tenure.model.update import Effect, StepChange
from tenure.stores.sqlite import rows
from tenure.stores.sqlite.reading import Reading
from tenure.stores.sqlite.recent import Known, Recent
from tenure.stores.sqlite.rows import Head
from tenure.stores.sqlite.statements import Statements


class Loading:
    def __init__(self, sql: Statements, reading: Reading) -> None:
        self._sql = sql
        self._reading = reading
        self.recent = Recent()

    def begin(self) -> None:
        """At the start of a transaction: has anybody else written since our last one?"""
        self.recent.data_version = self._sql.one("data_version")[0]

    def find(self, run_id: str) -> Head | None:
        known = self.recent.get(run_id)
        if known is not None:
            if known.seen_in == self.recent.data_version:
                return known.head
            head = rows.still_as(known.head, self._sql.first("mark", known.head.seq))
            if head is not None:
                known.head, known.seen_in = head, self.recent.data_version
                return head
            self.recent.forget(run_id)
        row = self._sql.first("head_by_id", run_id)
        return rows.head_of(row) if row else None

    def head(self, seq: int) -> Head:
        return rows.head_of(self._sql.one("head_by_seq", seq))

    def update_id_of(self, seq: int, version: int) -> str | None:
        row = self._sql.first("update_id_of", seq, version)
        return row[0] if row else None

    def for_effect(self, head: Head, effect: Effect) -> RunSnapshot:
        """What this leaves out is pending, or has ended."""
        run, changes = head.run, effect.changes
        fields: dict[str, Any] = {}
        if effect.deliveries:
            (callbacks,) = self._sql.one("callbacks", head.seq)
            fields["callbacks"] = rows.callbacks_of(callbacks)
        ends = changes.run.status in TERMINAL_RUN and not run.ended
        if ends or changes.steps:
            fields["steps"] = self._steps(self._known(head), changes.steps, ends)
        return replace(run, **fields) if fields else run

    def _known(self, head: Head) -> Known:
        known = self.recent.get(head.run.run_id)
        if known is None:
            known = Known(head, self._reading.steps(head))
            if not head.run.ended:
                self.recent.put(known)
        return known

    def _steps(
        self, known: Known, changes: dict[int, StepChange], ends: bool
    ) -> tuple[StepState, ...]:
        found = {index: self._step(known, index, change) for index, change in changes.items()}
        if ends:
            for index in known.running_steps():
                if index not in found:
                    found[index] = self._with_hosts(known, index, {})
                else:
                    found[index] = self._with_hosts(known, index, _hosts_of(found[index]))
        return tuple(step for step in found.values() if step is not None)

    def _step(self, known: Known, index: int, change: StepChange) -> StepState | None:
        """``None`` for a step that is not there; whether it may be added is not decided here."""
        step = known.steps.get(index)
        if step is None:
            return None
        hosts: dict[str, HostState] = {}
        open_hosts, pending = known.open[index], known.pending[index]
        for name in change.hosts:
            host = open_hosts.get(name)
            if host is None:
                host = HostState() if name in pending else self._other_host(known, index, name)
            if host is not None:
                hosts[name] = host
        if change.status in ENDED_STEP:
            return self._with_hosts(known, index, hosts)
        return replace(step, hosts=hosts) if hosts else step

    @staticmethod
    def _with_hosts(known: Known, index: int, hosts: dict[str, HostState]) -> StepState:
        return replace(known.steps[index], hosts={**known.open[index], **hosts})

    def _other_host(self, known: Known, step: int, name: str) -> HostState | None:
        """Neither pending nor open: it has ended, or (``None``) the step does not plan it."""
        row = self._sql.first("host", known.head.seq, step, name)
        if row is not None:
            return rows.host_of(row[0])
        return HostState() if known.steps[step].status in ENDED_STEP else None


def _hosts_of(step: StepState | None) -> dict[str, HostState]:
    return step.hosts if step is not None else {}
