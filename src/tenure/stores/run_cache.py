"""A cache of the unfinished runs that this process wrote last.

An owner writes the same run again and again; reading it back each time would cost more than the
write. The transaction that writes must check that the cached state is current. Ended hosts are
dropped, so that a run takes less room the further it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec.structs import replace

from tenure.model.progress import StepDelta
from tenure.model.snapshot import HostState, StepState
from tenure.model.status import ENDED_HOST, ENDED_STEP, OPEN_HOST, StepStatus

MAX_WEIGHT = 200_000
"""Steps and unfinished hosts, over all runs."""

H = TypeVar("H")
"""The run's own row, in whatever form its store keeps it."""

EndedHost = Callable[["CachedRun[H]", int, str], HostState | None]
"""Reads a host that is neither pending nor open: ended, or ``None`` if the step lacks it."""


class CachedRun(Generic[H]):
    """``Steps`` of a cached run: every step, and the hosts that are pending or open. Ended hosts
    are read from the store."""

    def __init__(self, head: H, steps: Iterable[StepState], ended_host: EndedHost[H]) -> None:
        self.head = head
        self._steps: dict[int, StepState] = {}
        self.step = self._steps.get
        self._hosts: dict[int, dict[str, HostState]] = {}
        self._ended_host = ended_host
        self.weight = self.counted = 0
        self.seen_in = -1
        """SQLite's ``data_version`` at which it was last known to be current."""
        for step in steps:
            self._add(step)

    def _add(self, step: StepState) -> None:
        hosts, index = step.hosts, step.index
        self._steps[index] = replace(step, hosts={})
        self._hosts[index] = {
            name: host for name, host in hosts.items() if host.status not in ENDED_HOST
        }
        self.weight += 1 + len(hosts)

    def host(self, index: int, name: str) -> HostState | None:
        return self._hosts[index].get(name) or self._ended_host(self, index, name)

    def open_hosts(self, index: int) -> dict[str, HostState]:
        hosts = self._hosts.get(index)
        if not hosts:
            return {}
        return {name: host for name, host in hosts.items() if host.status in OPEN_HOST}

    def unfinished(self) -> Iterable[StepState]:
        return [
            step
            for index, step in self._steps.items()
            if step.status is not StepStatus.PENDING
            and (step.status is StepStatus.RUNNING or self._hosts[index])
        ]

    def advance(self, head: H, changed: dict[int, StepDelta]) -> None:
        """Apply an accepted update."""
        self.head = head
        for index, delta in changed.items():
            step = delta.after
            if delta.before is None:
                self._add(step)
            else:
                self._steps[index] = step
            hosts = self._hosts[index]
            for name, host in delta.hosts.items():
                if host.status in ENDED_HOST:
                    hosts.pop(name, None)
                else:
                    hosts[name] = host
            if hosts and step.status in ENDED_STEP:
                self._hosts[index] = self.open_hosts(index)


class Recent(Generic[H]):
    """At most ``MAX_WEIGHT``; evicts the run not written for longest."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, CachedRun[H]] = OrderedDict()
        self._weight = 0

    def get(self, run_id: str) -> CachedRun[H] | None:
        return self._runs.get(run_id)

    def put(self, run_id: str, known: CachedRun[H]) -> None:
        self.forget(run_id)
        known.counted = known.weight
        self._runs[run_id] = known
        self._weight += known.counted
        while self._weight > MAX_WEIGHT and len(self._runs) > 1:
            _, oldest = self._runs.popitem(last=False)  # atomic: other threads insert too
            self._weight -= oldest.counted

    def forget(self, run_id: str) -> None:
        known = self._runs.pop(run_id, None)
        if known is not None:
            self._weight -= known.counted

    def forget_all(self) -> None:
        self._runs.clear()
        self._weight = 0
