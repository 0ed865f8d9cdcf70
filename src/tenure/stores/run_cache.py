"""The unfinished runs this process wrote last, as they then stood.

An owner writes the same run again and again; reading it back each time would cost more than
writing it. Whether what is remembered still holds is for the store to find out, in the very
transaction that writes. Of hosts only those not ended are kept, so that a run weighs less the
further it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from tenure.model.codec import storable, storable_together
from tenure.model.errors import StoreRejected, TenureError
from tenure.model.progress import StepDelta
from tenure.model.snapshot import HostState, StepState
from tenure.model.status import ENDED_HOST, ENDED_STEP, OPEN_HOST, StepStatus
from tenure.model.update import Write, run_id_of

MAX_WEIGHT = 200_000
"""Steps and unfinished hosts, over all runs."""

H = TypeVar("H")
"""The run's own row, in whatever form its store keeps it."""

EndedHost = Callable[["Known[H]", int, str], HostState | None]
"""Asked for a host of a step that is neither pending nor open: it has ended, or (``None``) the step
does not have it."""


class Known(Generic[H]):
    """Every step of a run, without hosts; and its hosts that are pending or open. ``Steps`` for
    whoever decides, who may ask for a host that has ended: then its store is asked."""

    def __init__(
        self,
        head: H,
        steps: Iterable[StepState],
        ended_host: EndedHost[H],
    ) -> None:
        self.head = head
        self._steps: dict[int, StepState] = {}
        self.step = self._steps.get
        self._hosts: dict[int, dict[str, HostState]] = {}
        self._ended_host = ended_host
        self.weight = self.counted = 0
        self.seen_in = -1
        """For a store that counts what others committed: when it was last known to be so."""
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
        """Take in what an accepted update changed."""
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
            _, oldest = self._runs.popitem(last=False)  # in one go: other threads put theirs
            self._weight -= oldest.counted

    def forget(self, run_id: str) -> None:
        known = self._runs.pop(run_id, None)
        if known is not None:
            self._weight -= known.counted

    def forget_all(self) -> None:
        self._runs.clear()
        self._weight = 0


# Writes as callers hand them over: each is checked, and copied, before a batch depends on it.


def incoming(writes: Sequence[Write]) -> list[Write | TenureError]:
    """Each as ``storable`` gives it back, or why it cannot be written."""
    apart = told_apart(writes)
    refusals = [each for each in apart if isinstance(each, TenureError)]
    return [_checked(each) for each in apart] if refusals else checked(writes)


def told_apart(writes: Sequence[Write]) -> list[Write | TenureError]:
    """As they are, still to be checked; or a refusal, if it is none or its run has one already."""
    seen: set[str] = set()
    apart: list[Write | TenureError] = []
    for write in writes:
        try:
            run_id = run_id_of(write)
        except StoreRejected as refusal:
            apart.append(refusal)
            continue
        if run_id in seen:
            apart.append(StoreRejected(run_id, "is written twice in one batch"))
        else:
            seen.add(run_id)
            apart.append(write)
    return apart


def checked(writes: Sequence[Write]) -> list[Write | TenureError]:
    """All in one go if nothing is wrong with any of them; else one by one, so that what is wrong
    harms nobody else."""
    together = storable_together(writes)
    return [_checked(write) for write in writes] if together is None else [*together]


def _checked(write: Write | TenureError) -> Write | TenureError:
    if isinstance(write, TenureError):
        return write
    try:
        return storable(run_id_of(write), write)
    except TenureError as refusal:
        return refusal
