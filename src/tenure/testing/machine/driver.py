"""Asks the store, asks the model, and compares: the part of the machine without rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from tenure.model.errors import LeaseHeld, LeaseLost, TenureError, VersionConflict
from tenure.model.outbox import Delivery
from tenure.model.update import Receipt
from tenure.ports.callbacks import Outbox
from tenure.ports.leases import LeaseStore, LiveRuns
from tenure.ports.store import Definitions, EventLog
from tenure.testing.clock import ManualClock
from tenure.testing.machine.outbox import StoreModel, run_id_of
from tenure.testing.machine.plain import NOW, Plain, check_same, plain
from tenure.testing.machine.runs import Run
from tenure.testing.machine.steps import Refusal

OpenStore = Callable[[ManualClock], AbstractAsyncContextManager[Any]]
"""Opens an empty store that lives by the given clock; leaving closes it and clears up."""

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
        """Those that changed something: the ones whose repetition must be recognised."""
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

    # Calls and answers

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
        """What a refusal tells its receiver to decide by."""
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

    # Records

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
        """A write is stamped by the store's clock, and never before the write it follows."""
        if not run.unread:
            return
        assert seen["version"] == run.version, (
            f"run {run_id_of(run)} is at version {seen['version']}, not {run.version}"
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
        """Without leases, what a store says about the end of an ownership is its own affair."""
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
        seen = self.ask("read_events", run_id_of(run))
        assert [event["version"] for event in plain(seen)] == [
            event["version"] for event in run.events
        ], "the journal lacks a version or has one too many"
        for expected, event in zip(run.events, seen, strict=True):
            told = plain(event)
            if "owner" in expected:  # a lease event: its wording is the store's
                assert told["data"]["owner_id"] == expected["owner"]
                expected = {**told, **{k: v for k, v in expected.items() if k != "owner"}}
            check_same(f"event {event.position} of {run_id_of(run)}", expected, told)

    def _check_deliveries(self, run: Run) -> None:
        page = self.ask("list_deliveries", run_id=run_id_of(run), limit=1000)
        mine = [one for one in self.model.deliveries.values() if one["run_id"] == run_id_of(run)]
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
        """The version this write made, and otherwise where the run stands now."""
        now = self.as_read(self.model.runs[receipt.run_id])
        expected = {name: now[name] for name in Receipt.__struct_fields__} | {"version": version}
        check_same(f"receipt for {receipt.run_id}", expected, plain(receipt))
