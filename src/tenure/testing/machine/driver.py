"""Calls the store and the model, and compares them: the machine without rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tenure.model.errors import LeaseHeld, LeaseLost, StoreRejected, TenureError, VersionConflict
from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, Purpose
from tenure.model.outbox import Delivery, Outcome, RetryLater
from tenure.model.update import Fencing, LeaseRequest, NewRun, Receipt, Update, Write, run_id_of
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore, LiveRuns
from tenure.ports.store import Definitions, EventLog, LogKey
from tenure.testing.clock import ManualClock
from tenure.testing.machine.model import (
    NOW,
    Plain,
    Refusal,
    Run,
    StoreModel,
    check_choice,
    check_same,
    name_of,
    plain,
)

OpenStore = Callable[[ManualClock], AbstractAsyncContextManager[Any]]
"""Opens an empty store with the given clock; closes and removes it at the end."""

T = TypeVar("T")

_TICK = timedelta(milliseconds=1)


class Call(NamedTuple):
    method: str
    args: tuple[Any, ...]


class StoreDriver(RuleBasedStateMachine):
    """One store, one model, one event loop per example."""

    open_store: OpenStore
    new_clock: Callable[[], ManualClock] = ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.clock = type(self).new_clock()
        self.sent: list[Call] = []
        self.applied: list[Call] = []
        """Calls that changed something: their repetition must be recognised."""
        self._numbers = count(1)
        self._loop = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._opened = type(self).open_store(self.clock)
        self.store: Any = self._loop.run(self._enter())
        self.model = StoreModel(self.clock, leases=self.has(LeaseStore))
        self.knows_liveness = self.has(LeaseStore) or self.has(LiveRuns)

    async def _enter(self) -> Any:
        return await self._opened.__aenter__()

    async def _leave(self) -> None:
        await self._opened.__aexit__(None, None, None)

    def teardown(self) -> None:
        try:
            for run_id in self.model.runs:
                self.check_run(run_id)
        finally:
            self._loop.run(self._leave())
            self._loop.close()

    def has(self, protocol: type) -> bool:
        return isinstance(self.store, protocol)

    def new_name(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers):06}"

    # Calls and answers.

    def send(self, method: str, *args: Any) -> None:
        """A call that may change something: kept, so that it can arrive once more."""
        call = Call(method, args)
        self.sent.append(call)
        before = self._versions()
        self.perform(call)
        if self._versions() != before:
            self.applied.append(call)

    def _versions(self) -> list[int]:
        return [run.version for run in self.model.runs.values()]

    def perform(self, call: Call) -> None:
        getattr(self, f"on_{call.method}")(*call.args)

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """The store's answer; a refusal is an answer too."""

        async def call() -> Any:
            return await getattr(self.store, method)(*args, **kwargs)

        try:
            return self._loop.run(call())
        except TenureError as error:
            return error

    @staticmethod
    def expect(decide: Callable[..., T], *args: Any) -> T | Refusal:
        try:
            return decide(*args)
        except Refusal as refusal:
            return refusal

    def agree(self, what: str, expected: object, answer: object) -> bool:
        """Whether both accepted. Accepting what the other refuses is a failure."""
        if not isinstance(expected, Refusal):
            assert not isinstance(answer, TenureError), f"{what} was refused: {answer!r}"
            return True
        assert isinstance(answer, expected.kinds), f"{what}: wanted {expected}, got {answer!r}"
        self._check_facts(answer)
        return False

    def _check_facts(self, error: TenureError) -> None:
        """The facts in an error by which its receiver decides."""
        if not isinstance(error, VersionConflict | LeaseLost | LeaseHeld):
            return
        run = self.model.runs[error.run_id]
        names = {
            VersionConflict: ("version", "fence", "status", "cancel_requested_at"),
            LeaseLost: ("fence", "owner_id"),
            LeaseHeld: ("owner_id",),
        }[type(error)]
        told = {name: plain(getattr(error, name)) for name in names}
        check_same(f"facts of {error!r}", {name: run.record[name] for name in names}, told)
        if isinstance(error, LeaseHeld) and self.has(LeaseStore):
            assert error.expires_at in self.model.expiries(run)

    # Records.

    def check_run(self, run_id: str) -> None:
        """The store's record, journal and callbacks of this run are the model's."""
        run = self.model.runs[run_id]
        seen = self.ask("get_run", run_id)
        assert not isinstance(seen, TenureError), f"run {run_id} is gone: {seen!r}"
        record: Plain = plain(seen)
        self._learn_time(run, record)
        self._check_callback_error(run, record)
        self._check_expiry(run, record)
        run.last_seen = record
        check_same(f"run {run_id}", self.as_read(run), record)
        if self.has(EventLog):
            self._check_events(run)
        if self.has(Outbox) and run.record["callbacks"]:
            self._check_deliveries(run)
        if self.has(Definitions):
            assert self.ask("get_definition", run_id) == run.definition

    def _learn_time(self, run: Run, seen: Plain) -> None:
        """A write has the store's time, but is never before the write it follows."""
        if not run.unread:
            return
        assert seen["version"] == run.version, (
            f"run {name_of(run)} is at version {seen['version']}, not {run.version}"
        )
        at, now = seen["updated_at"], self.clock.now()
        earlier = [event["at"] for event in run.events if event["version"] < run.version]
        before = max(earlier, default=None)
        latest = max(now, self._newest_birth()) if before is None else max(now, before + _TICK)
        assert now <= at <= latest, f"stamped {at}, while it is {now}"
        if before is not None:
            later = at > before if run.strictly_later else at >= before
            assert later, f"updated_at went from {before} to {at}"
        run.learn(at)

    def _newest_birth(self) -> datetime:
        """A store may keep births in order although the wall clock was set back."""
        births = (run.record["created_at"] for run in self.model.runs.values())
        return max((birth for birth in births if birth != NOW), default=self.clock.now())

    def as_read(self, run: Run) -> Plain:
        """The model's record as a reader must find it at this moment."""
        read = {**run.record, "lease_expires_at": run.last_seen["lease_expires_at"]}
        read["owner_lost"] = read["status"] == "running" and not self.model.live(run)
        if not self.knows_liveness:
            read["owner_lost"] = run.last_seen["owner_lost"]
        return read

    def _check_expiry(self, run: Run, seen: Plain) -> None:
        """Not without leases."""
        if self.has(LeaseStore):
            allowed = self.model.expiries(run)
            told = seen["lease_expires_at"]
            assert told in allowed, f"lease_expires_at is {told}, not one of {allowed}"

    def _check_callback_error(self, run: Run, seen: Plain) -> None:
        allowed = list(self.model.callback_errors(run))
        shown = seen["callback_error"]
        told = shown and {name: shown[name] for name in ("target", "event", "error")}
        assert told in allowed, f"callback_error is {told}, not one of {allowed}"
        run.record["callback_error"] = shown

    def _check_events(self, run: Run) -> None:
        """The journal is contiguous, in order, and says what was written."""
        seen = self.ask("read_events", name_of(run))
        assert [event["version"] for event in plain(seen)] == [
            event["version"] for event in run.events
        ], "the journal lacks a version or has one too many"
        for expected, event in zip(run.events, seen, strict=True):
            told = plain(event)
            if "owner" in expected:  # a lease event, with data of the store
                assert told["data"]["owner_id"] == expected["owner"]
                expected = {**told, **{k: v for k, v in expected.items() if k != "owner"}}
            check_same(f"event {event.position} of {name_of(run)}", expected, told)

    def _check_deliveries(self, run: Run) -> None:
        page = self.ask("list_deliveries", run_id=name_of(run), limit=1000)
        mine = [one for one in self.model.deliveries.values() if one["run_id"] == name_of(run)]
        seen = {delivery.id: delivery for delivery in page.items}
        assert {one["id"] for one in mine} == set(seen), "callbacks were lost or invented"
        for delivery in mine:
            self.check_delivery(delivery, seen[delivery["id"]])

    def check_delivery(self, expected: Plain, seen: Delivery) -> None:
        told = {
            "id": seen.id,
            "run_id": seen.run_id,
            "target": seen.target.name,
            "version": seen.event.version,
            "seq": seen.event.seq,
            "type": seen.event.type,
            "run_status": seen.run_status.value,
            "state": seen.state.value,
            "attempts": seen.attempts,
            "last_error": seen.last_error,
            "redelivery": seen.redelivery,
        }
        check_same(f"callback {seen.id}", {name: expected[name] for name in told}, told)
        assert (seen.settled_at is None) == (expected["settled_at"] is None)
        if expected["settled_at"] == NOW:
            expected["settled_at"] = seen.settled_at
        assert seen.settled_at == expected["settled_at"], f"callback {seen.id} settled anew"
        if expected["due_at"] is None:
            expected["due_at"] = seen.due_at
        assert seen.due_at == expected["due_at"], f"callback {seen.id} is due at another time"

    def check_receipt(self, receipt: Receipt, version: int) -> None:
        """The version of this write, and the run's current state."""
        now = self.as_read(self.model.runs[receipt.run_id])
        expected = {name: now[name] for name in Receipt.__struct_fields__} | {"version": version}
        check_same(f"receipt for {receipt.run_id}", expected, plain(receipt))


# One method per writing call: send it, check the answer and the record. A repeated call takes the
# same method: the model must recognise it too.


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

    # Leases.

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

    # Callbacks.

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

    # Output.

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
