"""The plain model of leases: who may take a run, and what taking it does."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.model.errors import LeaseHeld, LeaseLost, NotRunnable
from tenure.model.leases import ClaimRequest, Lease, Purpose
from tenure.model.update import Fencing, LeaseRequest
from tenure.testing.machine.plain import Plain
from tenure.testing.machine.runs import Run, RunModel
from tenure.testing.machine.steps import Refusal


class LeaseModel(RunModel):
    def runnable(self, run: Run, purpose: Purpose = Purpose.EXECUTE) -> bool:
        """Lease aside: may this run be claimed?"""
        record = run.record
        if run.ended:
            return False
        if purpose is Purpose.RECONCILE:
            if record["cancel_requested_at"] is not None:
                return True
            never_owned = record["status"] == "queued" and record["owner_id"] is None
            return record["recovery"] == "interrupt" and not never_owned
        if record["status"] == "running" and record["recovery"] != "resume":
            return False
        approved = not record["approval"]["required"] or record["approval"]["at"] is not None
        return approved and (record["run_after"] or self.clock.now()) <= self.clock.now()

    def claim_run(self, run_id: str, request: LeaseRequest, purpose: Purpose) -> Run:
        run = self.find(run_id)
        owner, repeated = run.record["owner_id"], self.held_under(run, request)
        if owner is not None and (repeated or not self.is_over(run, request)):
            if owner != request.owner_id:
                raise Refusal(LeaseHeld)
            self.keep(run, request)
            return run
        if not self.runnable(run, purpose):
            raise Refusal(NotRunnable)
        self.take(run, request)
        return run

    @staticmethod
    def held_under(run: Run, request: LeaseRequest | ClaimRequest) -> bool:
        mine = run.record["owner_id"] == request.owner_id
        return mine and run.claim_id == request.claim_id

    def keep(self, run: Run, request: LeaseRequest | ClaimRequest) -> None:
        """Claimed by its own holder: renewed, same fence."""
        self._extend(run, request.seconds)
        run.claim_id = request.claim_id

    def take(self, run: Run, request: LeaseRequest | ClaimRequest) -> None:
        """Fence and version rise; only somebody's unreturned lease makes it a takeover."""
        record = run.record
        taken_over = record["owner_id"] is not None
        record["fence"] += 1
        record["version"] += 1
        record["takeovers"] += taken_over
        record["takeovers_without_progress"] += taken_over
        record["owner_id"] = request.owner_id
        self.hold(run, request.seconds, request.claim_id)
        run.wrote(request.claim_id, [{"owner": request.owner_id}], strictly_later=False)

    def claimable(self, request: ClaimRequest) -> list[Run]:
        return [run for run in self.runs.values() if self._claimable(run, request)]

    def _claimable(self, run: Run, request: ClaimRequest) -> bool:
        executing = request.purpose is Purpose.EXECUTE
        if executing and run.record["queue"] not in request.queues:
            return False
        owner = run.record["owner_id"]
        free = owner is None or owner in request.dead_owners or self.is_over(run, request)
        return free and self.runnable(run, request.purpose)

    def is_over(self, run: Run, request: LeaseRequest | ClaimRequest) -> bool:
        """Who is careful takes only a lease that nobody can come back to, after a reboot."""
        return not self.live(run) if request.expired else not self.of_this_boot(run)

    def listed_runnable(self) -> list[Run]:
        return [run for run in self.runs.values() if not self.live(run) and self.runnable(run)]

    def renew(self, lease: Lease, seconds: float) -> bool:
        run = self.runs.get(lease.run_id)
        if run is None or not self.holds(run, lease.fencing):
            return False
        self._extend(run, seconds)
        return True

    def _extend(self, run: Run, seconds: float) -> None:
        """Never shortened."""
        if not self.live(run) or run.until is None or self.lease_end(seconds) >= run.until:
            self.hold(run, seconds, run.claim_id)

    def release(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        run = self.find(run_id)
        owner = run.record["owner_id"]
        if fencing.fence != run.record["fence"] or owner not in (None, fencing.owner_id):
            raise Refusal(LeaseLost)
        if owner is None:
            return
        run.record["version"] += 1
        run.disown()
        run.wrote(update_id, [{"owner": fencing.owner_id}], strictly_later=False)

    @staticmethod
    def holds(run: Run, fencing: Fencing) -> bool:
        return (run.record["owner_id"], run.record["fence"]) == (fencing.owner_id, fencing.fence)


def check_choice(eligible: list[Run], chosen: list[Run], limit: int) -> None:
    """As many as asked for, by priority, then oldest; now and then the oldest of all.

    Which claim the tenth one is, is the store's affair; here at most one in ten, rounded up,
    may have been chosen for its age.
    """
    assert len(chosen) == min(limit, len(eligible)), "wrong number of runs claimed"
    names = {run.record["run_id"] for run in chosen}
    assert len(names) == len(chosen), "a run was claimed twice in one answer"
    assert all(run in eligible for run in chosen), "a run was claimed that could not be"
    left = [run for run in eligible if run.record["run_id"] not in names]
    for_age = [run for run in chosen if any(_before(other.record, run.record) for other in left)]
    assert len(for_age) <= (limit + 9) // 10, "claimed past a higher priority or an older run"
    for run in for_age:
        assert not any(_older(other.record, run.record) for other in left), (
            f"{run.record['run_id']} was claimed out of order and is not the oldest"
        )


def check_order(listed: Iterable[Run]) -> None:
    """Highest priority first, then oldest."""
    runs = list(listed)
    for position, run in enumerate(runs):
        for later in runs[position + 1 :]:
            assert not _before(later.record, run.record), "not by priority, then oldest"


def _before(one: Plain, other: Plain) -> bool:
    if one["priority"] != other["priority"]:
        return bool(one["priority"] > other["priority"])
    return _older(one, other)


def _older(one: Plain, other: Plain) -> bool:
    """Certainly older: a run that had to wait for its time may count from either moment."""
    if one["run_after"] or other["run_after"]:
        return False
    return bool(one["created_at"] < other["created_at"])
