"""How many hosts of a rolling step may fail: one budget over all the runs of a chain of retries.

A host counts as it last ended. One that this run tries again counts only if it fails again; one
that failed before, and that this run leaves alone, counts with the first host that fails here. (By
itself it stops nothing: a retry may begin with one host to see whether the cause is mended.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tenure.model.status import HostStatus
from tenure.workflow.spec import Rolling
from tenure.workflow.wording import listed

_UNREACHABLE = HostStatus.UNREACHABLE


class Budget:
    """``in_all`` is how many hosts the step has, ``hosts`` are those of this run, ``before`` all
    that an earlier run left failed."""

    __slots__ = ("_again", "_apart", "_before", "_elsewhere", "_failures", "_most", "_unreachable")

    def __init__(
        self,
        rolling: Rolling,
        in_all: int,
        hosts: Collection[str],
        before: Mapping[str, HostStatus],
    ) -> None:
        self._most = rolling.failure_budget(in_all)
        self._apart = rolling.unreachable_budget(in_all)
        self._before = before
        self._failures = self._unreachable = 0
        self._again = False
        """Whether a host failed that had failed before."""
        self._elsewhere = sorted(before.keys() - set(hosts)) if before else []
        for host in self._elsewhere:
            self._count(before[host])

    def take(self, host: str, status: HostStatus) -> bool:
        """A host of this run failed; whether these are too many now."""
        self._count(status)
        self._again |= host in self._before
        return self._failures > self._most or (
            self._apart is not None and self._unreachable > self._apart
        )

    def _count(self, status: HostStatus) -> None:
        if status is _UNREACHABLE and self._apart is not None:
            self._unreachable += 1
        else:
            self._failures += 1

    def bears(self, through: int) -> bool:
        """Whether failures that are not too many are borne, ``through`` hosts having come through.

        A budget is for hosts that fail on the way, not for those that somebody takes up because
        they failed: a retry that helps none of them has failed.
        """
        return not self._again or through > 0

    def explained(self, *, spent: bool, through: int) -> str:
        """Why the step fails, where the hosts that failed in this run do not explain it."""
        if not spent:
            return "" if self.bears(through) else "; failed before, and no host came through now"
        if not self._elsewhere:
            return ""
        counts = "counts" if len(self._elsewhere) == 1 else "count"
        return f"; {listed(self._elsewhere, 5)} failed before and {counts} too"
