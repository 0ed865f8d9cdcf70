"""The unfinished runs this process wrote last, as they then stood.

An owner writes the same run again and again; reading it back each time would cost more than
writing it. What is remembered holds while no other connection has committed anything (SQLite's
``data_version`` tells); after that, for each run whose row carries the mark it was left with. Our
own writes past this memory (claims, callbacks settled) must forget or correct it. Of hosts only
those not ended are kept, so that a run weighs less the further it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, HostStatus, StepStatus
from tenure.model.update import Effect
from tenure.stores.sqlite.rows import Head

MAX_WEIGHT = 200_000
"""Steps and unfinished hosts, over all runs."""

_OPEN = (HostStatus.RUNNING, HostStatus.UNKNOWN)


class Known:
    """Every step of a run, without hosts; and its hosts that are pending or open."""

    def __init__(self, head: Head, steps: Iterable[StepState]) -> None:
        self.head = head
        self.steps: dict[int, StepState] = {}
        self.pending: dict[int, set[str]] = {}
        self.open: dict[int, dict[str, HostState]] = {}
        self.weight = self.counted = 0
        self.seen_in = -1
        """The ``data_version`` in which it was last known to be so."""
        for step in steps:
            self._add(step)

    def _add(self, step: StepState) -> None:
        hosts = step.hosts
        self.steps[step.index] = replace(step, hosts={})
        self.pending[step.index] = {
            name for name, host in hosts.items() if host.status is HostStatus.PENDING
        }
        self.open[step.index] = {name: host for name, host in hosts.items() if host.status in _OPEN}
        self.weight += 1 + len(hosts)

    def running_steps(self) -> Iterable[int]:
        """Steps that the end of the run concerns."""
        for index, step in self.steps.items():
            if step.status is StepStatus.RUNNING or self.open[index]:
                yield index

    def advance(
        self, head: Head, after: RunSnapshot, effect: Effect, bare: dict[int, StepState]
    ) -> None:
        """Take in what an accepted update changed; ``bare`` are its steps without hosts."""
        self.head = head
        if not effect.changes.steps:
            return
        changed = {step.index: step for step in after.steps}
        for index, change in effect.changes.steps.items():
            step = changed[index]
            if index not in self.steps:
                self._add(step)
                continue
            if index in bare:
                self.steps[index] = bare[index]
            pending, open_hosts = self.pending[index], self.open[index]
            for name in change.hosts:
                host = step.hosts[name]
                pending.discard(name)
                if host.status in _OPEN:
                    open_hosts[name] = host
                else:
                    open_hosts.pop(name, None)
            if step.status in ENDED_STEP:
                pending.clear()


class Recent:
    """Bounded; the run not written for longest goes first."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Known] = OrderedDict()
        self._weight = 0
        self.data_version = -1

    def get(self, run_id: str) -> Known | None:
        return self._runs.get(run_id)

    def put(self, known: Known) -> None:
        run_id = known.head.run.run_id
        self.forget(run_id)
        known.seen_in = self.data_version
        known.counted = known.weight
        self._runs[run_id] = known
        self._weight += known.counted
        while self._weight > MAX_WEIGHT and len(self._runs) > 1:
            self.forget(next(iter(self._runs)))

    def forget(self, run_id: str) -> None:
        known = self._runs.pop(run_id, None)
        if known is not None:
            self._weight -= known.counted

    def forget_all(self) -> None:
        self._runs.clear()
        self._weight = 0
