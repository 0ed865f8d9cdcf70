"""One method per mutating verb: send it, judge the answer, look at what became of the record.

A call that arrives a second time goes through the very same method: the model, too, must
recognise it.
"""

from __future__ import annotations

from tenure.model.errors import StoreRejected
from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, Purpose
from tenure.model.outbox import Outcome, RetryLater
from tenure.model.update import Fencing, LeaseRequest, NewRun, Update, Write, run_id_of
from tenure.ports.store import LogKey
from tenure.testing.machine.driver import StoreDriver
from tenure.testing.machine.ownership import check_choice
from tenure.testing.machine.plain import check_same, plain
from tenure.testing.machine.runs import Run
from tenure.testing.machine.steps import Refusal


class Performing(StoreDriver):
    def on_create_run(self, new: NewRun) -> None:
        expected = self.expect(self.model.create, new)
        answer = self.ask("create_run", new)
        self._after_write(new, expected, answer)

    def on_update_run(self, update: Update) -> None:
        expected = self.expect(self.model.update, update)
        answer = self.ask("update_run", update)
        self._after_write(update, expected, answer)

    def on_update_runs(self, writes: list[Write]) -> None:
        expected: list[int | Refusal] = []
        for position, write in enumerate(writes):
            earlier = [run_id_of(other) for other in writes[:position]]
            decide = self.model.create if isinstance(write, NewRun) else self.model.update
            repeated = run_id_of(write) in earlier
            expected.append(Refusal(StoreRejected) if repeated else self.expect(decide, write))
        answers = self.ask("update_runs", writes)
        assert len(answers) == len(writes), "one outcome for each write"
        for write, version, answer in zip(writes, expected, answers, strict=True):
            self._after_write(write, version, answer)

    def _after_write(self, write: Write, expected: int | Refusal, answer: object) -> None:
        run_id = run_id_of(write)
        accepted = self.agree(type(write).__name__, expected, answer)
        if run_id in self.model.runs:
            self.check_run(run_id)
        if accepted:
            self.check_receipt(answer, expected)  # type: ignore[arg-type]

    # Leases

    def on_claim_run(self, run_id: str, request: LeaseRequest, purpose: Purpose) -> None:
        expected = self.expect(self.model.claim_run, run_id, request, purpose)
        answer = self.ask("claim_run", run_id, request, purpose)
        if self.agree("claim_run", expected, answer):
            self._check_claimed(answer)
        elif run_id in self.model.runs:
            self.check_run(run_id)

    def on_claim_runs(self, request: ClaimRequest) -> None:
        model = self.model
        held = [run for run in model.runs.values() if model.held_under(run, request)]
        eligible = model.claimable(request)
        answer = self.ask("claim_runs", request)
        self.agree("claim_runs", None, answer)
        chosen = [model.runs[claimed.lease.run_id] for claimed in answer]
        if held:
            again = {run.number for run in chosen} == {run.number for run in held}
            assert again, "a repeated claim must return what is held under it, and only that"
            for run in held:
                model.keep(run, request)
        else:
            check_choice(eligible, chosen, request.limit)
            for run in chosen:
                model.take(run, request)
        for claimed in answer:
            self._check_claimed(claimed)
        for run in eligible:
            self.check_run(run.record["run_id"])

    def _check_claimed(self, claimed: ClaimedRun) -> None:
        """The lease is the run's own, and the snapshot is the record after the claim."""
        run = self.model.runs[claimed.lease.run_id]
        self.check_run(claimed.lease.run_id)
        now = self.as_read(run)
        check_same("snapshot of a claim", now, plain(claimed.snapshot))
        lease = {name: now[name] for name in ("run_id", "owner_id", "fence")}
        check_same(
            "lease of a claim",
            {**lease, "expires_at": now["lease_expires_at"]},
            plain(claimed.lease),
        )

    def on_renew_leases(self, leases: list[Lease], seconds: float) -> None:
        expected = [self.model.renew(lease, seconds) for lease in leases]
        answers = self.ask("renew_leases", leases, seconds)
        self.agree("renew_leases", None, answers)
        check_same("renewals", expected, [answer.ok for answer in answers])
        for answer in answers:
            run = self.model.runs.get(answer.run_id)
            if run is not None:
                self.check_run(answer.run_id)
            if run is not None and answer.ok:
                self._check_renewal(run, plain(answer))

    def _check_renewal(self, run: Run, told: dict[str, object]) -> None:
        now = self.as_read(run)
        expected = {
            "run_id": now["run_id"],
            "ok": True,
            "busy": False,
            "expires_at": now["lease_expires_at"],
            "cancel_requested_at": now["cancel_requested_at"],
            "version": now["version"],
        }
        check_same("renewal", expected, told)

    def on_release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        expected = self.expect(self.model.release, run_id, fencing, update_id)
        answer = self.ask("release_lease", run_id, fencing, update_id)
        self.agree("release_lease", expected, answer)
        if run_id in self.model.runs:
            self.check_run(run_id)

    # Callbacks

    def on_claim_deliveries(self, token: str, limit: int, seconds: float) -> None:
        model = self.model
        held, due = model.held_by(token), model.due()
        answer = self.ask("claim_deliveries", token, limit=limit, seconds=seconds)
        self.agree("claim_deliveries", None, answer)
        chosen = [model.deliveries[delivery.id] for delivery in answer]
        if held:
            again = {one["id"] for one in chosen} == {one["id"] for one in held}
            assert again, "a repeated token must return what is held under it, and only that"
        else:
            assert len(chosen) == min(limit, len(due)), "wrong number of callbacks claimed"
            assert all(one in due for one in chosen), "a callback was claimed out of turn"
            left = [one["due_at"] for one in due if one not in chosen]
            assert not left or max(one["due_at"] for one in chosen) <= min(left)
            until = model.lease_end(seconds)
            for one in chosen:
                one.update(token=token, until=until)
        for one, delivery in zip(chosen, answer, strict=True):
            assert delivery.token == token
            self.check_delivery(one, delivery)

    def on_settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> None:
        expected = self.expect(self.model.settle, delivery_id, token, outcome)
        answer = self.ask("settle_delivery", delivery_id, token, outcome)
        if self.agree("settle_delivery", expected, answer) and not isinstance(expected, Refusal):
            if isinstance(outcome, RetryLater) and expected["due_at"] is None:
                assert (answer.due_at - self.clock.now()).total_seconds() == outcome.delay
            self.check_delivery(self.model.deliveries[delivery_id], answer)
            self.check_run(answer.run_id)

    def on_requeue_delivery(self, delivery_id: str) -> None:
        expected = self.expect(self.model.requeue, delivery_id)
        answer = self.ask("requeue_delivery", delivery_id)
        if self.agree("requeue_delivery", expected, answer):
            self.check_delivery(self.model.deliveries[delivery_id], answer)
            self.check_run(answer.run_id)

    # Output

    def on_append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> None:
        expected = self.expect(self.model.append, run_id, fencing, key, offset, data)
        answer = self.ask("append", run_id, fencing, key, offset, data)
        if self.agree("append", expected, answer):
            assert answer == expected, "append must tell where the stream ends"
        if run_id in self.model.runs:
            self.check_log(run_id, key)

    def check_log(self, run_id: str, key: LogKey) -> None:
        stream = self.model.logs.get((run_id, key), b"")
        seen = self.ask("read", run_id, key)
        assert (seen.offset, seen.data, seen.size) == (0, stream, len(stream))
