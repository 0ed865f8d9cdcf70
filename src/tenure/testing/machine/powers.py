"""Rules for the powers a store may have beyond keeping runs: leases, callbacks, output."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tenure.model.leases import ClaimRequest, Lease, Purpose
from tenure.model.outbox import Delivered, GiveUp, Outcome, PutBack, RetryLater
from tenure.model.update import LeaseRequest
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore
from tenure.ports.store import LogKey, LogStore
from tenure.testing.machine.draws import OWNERS, QUEUES, SECONDS, Draw
from tenure.testing.machine.rules import RunRules, can


class LeaseRules(RunRules):
    def _request(self, draw: Draw) -> LeaseRequest:
        return LeaseRequest(
            owner_id=draw.one(OWNERS),
            seconds=draw.one(SECONDS),
            claim_id=self.new_name("claim"),
            expired=not draw.seldom(),
        )

    @precondition(can(LeaseStore))
    @rule(data=st.data(), purpose=st.sampled_from(Purpose))
    def claim_alone(self, data: st.DataObject, purpose: Purpose) -> None:
        self.claim_one(data, purpose)

    def claim_one(self, data: st.DataObject, purpose: Purpose) -> None:
        draw = Draw(data)
        run_id = "run-that-is-not" if draw.seldom() else self.a_run(draw).record["run_id"]
        self.send("claim_run", run_id, self._request(draw), purpose)

    @precondition(can(LeaseStore))
    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim_many(self, data: st.DataObject, limit: int) -> None:
        draw = Draw(data)
        request = ClaimRequest(
            owner_id=draw.one(OWNERS),
            seconds=draw.one(SECONDS),
            claim_id=self.new_name("claims"),
            limit=limit,
            queues=tuple(draw.some(QUEUES, at_least=1)),
            purpose=draw.one((Purpose.EXECUTE, Purpose.EXECUTE, Purpose.RECONCILE)),
            expired=not draw.seldom(),
            dead_owners=frozenset(draw.some(OWNERS)) if draw.seldom() else frozenset(),
        )
        self.send("claim_runs", request)

    @precondition(can(LeaseStore))
    @rule(data=st.data(), number=st.integers(1, 3))
    def renew(self, data: st.DataObject, number: int) -> None:
        draw = Draw(data)
        leases = [self._lease(draw) for _ in range(number)]
        self.send("renew_leases", leases, draw.one(SECONDS))

    def _lease(self, draw: Draw) -> Lease:
        run = self.a_run(draw)
        fencing = self.fencing(draw, run)
        return Lease(
            run_id=run.record["run_id"],
            owner_id=fencing.owner_id,
            fence=fencing.fence,
            expires_at=self.clock.now(),
        )

    @precondition(can(LeaseStore))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        draw = Draw(data)
        run = self.a_run(draw)
        fencing = self.fencing(draw, run)
        self.send("release_lease", run.record["run_id"], fencing, self.new_name("release"))

    @precondition(can(LeaseStore))
    @rule(data=st.data())
    def frozen_owner_thaws(self, data: st.DataObject) -> None:
        """An owner falls silent, another takes its run over, and the first one comes back with
        what it had sent before."""
        self.clock.advance(max(SECONDS))
        self.claim_one(data, Purpose.EXECUTE)
        writes = [call for call in self.applied if call.method == "update_run"]
        if writes:
            self.perform(data.draw(st.sampled_from(writes)))

    @precondition(can(LeaseStore))
    @rule()
    def reboot(self) -> None:
        """Whoever held a lease cannot have survived it."""
        self.clock.reboot()
        for run_id in self.model.runs:
            self.check_run(run_id)


class OutboxRules(RunRules):
    @precondition(can(Outbox))
    @rule(limit=st.sampled_from((1, 2, 100)), seconds=st.sampled_from(SECONDS))
    def relay_claims(self, limit: int, seconds: float) -> None:
        self.send("claim_deliveries", self.new_name("token"), limit, seconds)

    @precondition(lambda self: bool(self.model.deliveries))
    @precondition(can(Outbox))
    @rule(data=st.data())
    def relay_settles(self, data: st.DataObject) -> None:
        draw = Draw(data)
        known = list(self.model.deliveries.values())
        held = [one for one in known if one["token"] is not None]
        one = draw.one(held if held and not draw.seldom() else known)
        token = one["token"] or one["settled_token"] or "token-never"
        outcomes: tuple[Outcome, ...] = (
            Delivered(),
            GiveUp("404"),
            RetryLater(10.0, "503"),
            PutBack(),
        )
        wrong = draw.seldom()
        self.send("settle_delivery", one["id"], "wrong" if wrong else token, draw.one(outcomes))

    @precondition(lambda self: bool(self.model.deliveries))
    @precondition(can(Outbox))
    @rule(data=st.data())
    def person_requeues(self, data: st.DataObject) -> None:
        self.send("requeue_delivery", Draw(data).one([*self.model.deliveries, "delivery-none"]))


class LogRules(RunRules):
    @precondition(can(LogStore))
    @rule(data=st.data(), chunk=st.sampled_from((b"one\n", b"two\n", b"\xff\x00")))
    def task_prints(self, data: st.DataObject, chunk: bytes) -> None:
        draw = Draw(data)
        run = self.a_run(draw)
        run_id = run.record["run_id"]
        key = LogKey(step=0, host=draw.one(("web1", "web2")), stream="stdout")
        end = len(self.model.logs.get((run_id, key), b""))
        offset = max(0, end + draw.one((1, -len(chunk)))) if draw.seldom() else end
        if offset + len(chunk) > end > offset:  # overlapping: the port does not say
            offset = end
        self.send("append", run_id, self.fencing(draw, run), key, offset, chunk)
