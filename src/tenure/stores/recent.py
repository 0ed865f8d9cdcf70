"""The unfinished runs this process wrote last, as they then stood.

An owner writes the same run again and again; reading it back each time would cost more than
writing it. Whether what is remembered still holds is for the store to find out, in the very
transaction that writes. Of hosts only those not ended are kept, so that a run weighs less the
further it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, HostStatus, StepStatus
from tenure.model.update import Effect, StepChange

MAX_WEIGHT = 200_000
"""Steps and unfinished hosts, over all runs."""

_OPEN = (HostStatus.RUNNING, HostStatus.UNKNOWN)

H = TypeVar("H")
"""The run's own row, in whatever form its store keeps it."""

EndedHost = Callable[[int, str], HostState | None]
"""Asked for a host of a step that is neither pending nor open: it has ended, or (``None``) the step
does not have it."""


class Known(Generic[H]):
    """Every step of a run, without hosts; and its hosts that are pending or open."""

    def __init__(self, head: H, steps: Iterable[StepState]) -> None:
        self.head = head
        self.steps: dict[int, StepState] = {}
        self.pending: dict[int, set[str]] = {}
        self.open: dict[int, dict[str, HostState]] = {}
        self.weight = self.counted = 0
        self.seen_in = -1
        """For a store that counts what others committed: when it was last known to be so."""
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

    def concerned(
        self, changes: dict[int, StepChange], ends: bool, ended_host: EndedHost
    ) -> tuple[StepState, ...]:
        """The steps and hosts that an update concerns, as ``model.apply`` asks for them."""
        found = {
            index: self._concerned_step(index, change, ended_host)
            for index, change in changes.items()
        }
        if ends:
            for index in self.running_steps():
                found[index] = self._with_open_hosts(index, _hosts_of(found.get(index)))
        return tuple(step for step in found.values() if step is not None)

    def _concerned_step(
        self, index: int, change: StepChange, ended_host: EndedHost
    ) -> StepState | None:
        """``None`` for a step that is not there; whether it may be added is not decided here."""
        step = self.steps.get(index)
        if step is None:
            return None
        hosts: dict[str, HostState] = {}
        open_hosts, pending = self.open[index], self.pending[index]
        for name in change.hosts:
            host = open_hosts.get(name)
            if host is None:
                host = HostState() if name in pending else ended_host(index, name)
            if host is not None:
                hosts[name] = host
        if change.status in ENDED_STEP:
            return self._with_open_hosts(index, hosts)
        return replace(step, hosts=hosts) if hosts else step

    def _with_open_hosts(self, index: int, hosts: dict[str, HostState]) -> StepState:
        return replace(self.steps[index], hosts={**self.open[index], **hosts})

    def advance(
        self, head: H, after: RunSnapshot, effect: Effect, bare: dict[int, StepState]
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


def _hosts_of(step: StepState | None) -> dict[str, HostState]:
    return step.hosts if step is not None else {}


class Recent(Generic[H]):
    """Bounded; the run not written for longest goes first."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Known[H]] = OrderedDict()
        self._weight = 0

    def get(self, run_id: str) -> Known[H] | None:
        return self._runs.get(run_id)

    def put(self, run_id: str, known: Known[H]) -> None:
        self.forget(run_id)
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
