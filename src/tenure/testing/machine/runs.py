"""The plain model of runs: SPEC 4 said again with dictionaries.

It decides what a store must answer and how the record must read afterwards. It uses Tenure's
values (updates, errors) and none of its decisions (``apply``, ``judge``, ``leasing``).
"""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any

from msgspec import UNSET

from tenure.model.errors import (
    InvalidRunId,
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    RunExists,
    RunNotFound,
    StoreRejected,
    TenureError,
    VersionConflict,
)
from tenure.model.update import Effect, Event, NewDelivery, NewRun, RunChange, Update
from tenure.ports.environment import BootTime, Clock
from tenure.testing.machine.plain import NOW, RUN_ENDS, RUN_MAY, Plain, plain, stamped
from tenure.testing.machine.steps import Reached, Refusal, change_step, close_run, counts

_TEXTS = ("message", "error", "last_error", "interrupted_reason", "unconfirmed_hosts")
_SECOND = 1_000_000_000


class Run:
    """One run: its record, its lease, and everything that was ever written about it."""

    def __init__(self, number: int, new: NewRun) -> None:
        self.number = number
        self.definition = new.definition
        self.record: Plain = plain(new.snapshot)
        self.reached: Reached = set()
        self.until: BootTime | None = None
        self.until_walls: set[datetime] = set()
        """The same end in wall time, as it looked whenever it was set."""
        self.claim_id: str | None = None
        self.update_ids: list[str] = []
        self.events: list[Plain] = []
        self.unread = False
        """Written since it was last read: the times of that write are not known yet."""
        self.strictly_later = True
        self.last_seen: Plain = {}

    @property
    def version(self) -> int:
        return int(self.record["version"])

    @property
    def ended(self) -> bool:
        return self.record["status"] in RUN_ENDS

    def learn(self, at: datetime) -> None:
        """The store's time of the last write."""
        self.record = stamped(self.record, at)
        self.events = stamped(self.events, at)
        self.unread = False

    def wrote(self, update_id: str, events: list[Plain], strictly_later: bool = True) -> None:
        """A new version with its journal row."""
        self.record["updated_at"] = NOW
        self.record["counts"] = counts(self.record, self.reached)
        self.update_ids.append(update_id)
        stamp = {"run_id": self.record["run_id"], "version": self.version, "at": NOW}
        self.events += [
            {**event, **stamp, "seq": seq, "fence": self.record["fence"]}
            for seq, event in enumerate(events)
        ]
        self.unread = True
        self.strictly_later = strictly_later

    def disown(self) -> None:
        self.record["owner_id"] = self.until = self.claim_id = None


class RunModel:
    def __init__(self, clock: Clock, *, leases: bool = True) -> None:
        self.clock = clock
        self.leases = leases
        """Without them, whoever a run was born to holds it until it gives it back."""
        self.runs: dict[str, Run] = {}
        self.deliveries: dict[str, Plain] = {}

    def find(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise Refusal(RunNotFound)
        return self.runs[run_id]

    def lease_end(self, seconds: float) -> BootTime:
        boot_id, nanoseconds = self.clock.boot_time()
        return BootTime(boot_id, nanoseconds + round(seconds * _SECOND))

    def not_over(self, until: BootTime | None) -> bool:
        """Judged by boot time alone; a lease from before the last boot is over."""
        boot_id, nanoseconds = self.clock.boot_time()
        return until is not None and until.boot_id == boot_id and nanoseconds < until.nanoseconds

    def live(self, run: Run) -> bool:
        return self.not_over(run.until) if self.leases else run.until is not None

    def of_this_boot(self, run: Run) -> bool:
        return run.until is not None and run.until.boot_id == self.clock.boot_time().boot_id

    def hold(self, run: Run, seconds: float, claim_id: str | None) -> None:
        until = self.lease_end(seconds)
        if until != run.until:
            run.until_walls = set()
        run.until, run.claim_id = until, claim_id
        run.until_walls.add(self.clock.now() + timedelta(seconds=seconds))

    def expiries(self, run: Run) -> set[datetime | None]:
        """What a reader may be told: the end in wall time as it was when the lease was given, or
        as it is now that the wall clock was set; of a lease from another boot, that it is over."""
        if run.until is None:
            return {None}
        boot_id, nanoseconds = self.clock.boot_time()
        same_boot = run.until.boot_id == boot_id
        left = (run.until.nanoseconds - nanoseconds) // 1000 if same_boot else 0
        return {*run.until_walls, self.clock.now() + timedelta(microseconds=left)}

    # Create

    def create(self, new: NewRun) -> int:
        given = new.snapshot
        if given.run_id in self.runs:
            return self._created_before(self.runs[given.run_id], new)
        if not 8 <= len(given.run_id) <= 128:
            raise Refusal(InvalidRunId)
        if self._cannot_be_born(new):
            raise Refusal(StoreRejected)
        run = Run(len(self.runs), new)
        self._await_approval(run, new)
        run.record.update(
            version=1,
            fence=1 if new.lease else 0,
            owner_id=new.lease.owner_id if new.lease else None,
            created_at=NOW,
            started_at=NOW if given.status == "running" else None,
        )
        self._start_born_steps(run)
        if new.lease is not None:
            self.hold(run, new.lease.seconds, new.lease.claim_id)
        run.wrote(new.update_id, [plain(event) for event in new.events])
        self.runs[given.run_id] = run
        self._enqueue(run, new.events, new.deliveries)
        return 1

    @staticmethod
    def _cannot_be_born(new: NewRun) -> bool:
        """Also: until somebody approves it, it is queued and nobody's."""
        given = new.snapshot
        if not -100 <= given.priority <= 100 or given.status.value not in RUN_MAY:
            return True
        if not {each.target for each in new.deliveries} <= {each.name for each in given.callbacks}:
            return True
        waits = given.approval.required and given.approval.by is None
        return waits and (new.lease is not None or given.status == "running")

    def _await_approval(self, run: Run, new: NewRun) -> None:
        approval = run.record["approval"]
        if approval["by"] is not None:
            approval["at"] = NOW
        elif approval["required"] and new.approval_seconds is not None:
            seconds = timedelta(seconds=new.approval_seconds)
            approval["expires_at"] = self.clock.now() + seconds

    def _created_before(self, run: Run, new: NewRun) -> int:
        if run.update_ids[0] != new.update_id:
            # Wrong in two ways, it hears of either.
            raise Refusal(RunExists, *[StoreRejected] * self._cannot_be_born(new))
        owner = run.record["owner_id"]
        if new.lease and (run.record["fence"] != 1 or owner not in (None, new.lease.owner_id)):
            raise Refusal(LeaseLost)
        return 1

    @staticmethod
    def _start_born_steps(run: Run) -> None:
        for index, step in enumerate(run.record["steps"]):
            if step["status"] == "running":
                step["started_at"] = NOW
                run.reached.add((index, None))
            for name, host in step["hosts"].items():
                if host["status"] == "running":
                    host["started_at"] = NOW
                    run.reached.add((index, name))

    # Update

    def update(self, update: Update) -> int:
        """The version the writer is told; the model has changed if that is a new one."""
        run = self.find(update.run_id)
        effect = self._effect(run, update)
        repeated = self._judge(run, update, effect)
        if repeated is not None:
            return repeated
        changed = copy.deepcopy(run)
        self._apply_with_callbacks(changed, effect)
        only_said = effect.changes.run.journal_only
        if update.lease is None and changed.record == run.record and not only_said:
            return run.version
        record = changed.record
        record["version"] += 1
        if update.lease is None and record["status"] != run.record["status"]:
            record["fence"] += 1
        if update.release or changed.ended:
            changed.disown()
        changed.wrote(update.update_id, [plain(event) for event in effect.events])
        self.runs[update.run_id] = changed
        self._enqueue(changed, effect.events, effect.deliveries)
        return changed.version

    def _effect(self, run: Run, update: Update) -> Effect:
        alone = not run.ended and not self.live(run)
        return update.if_unowned if update.if_unowned and alone else update.effect

    def _judge(self, run: Run, update: Update, effect: Effect) -> int | None:
        """The order of SPEC 4. A number is an answer that writes nothing."""
        record, lease, base = run.record, update.lease, update.base_version
        owner, status = record["owner_id"], effect.changes.run.status
        if lease and (lease.fence != record["fence"] or owner not in (None, lease.owner_id)):
            raise Refusal(LeaseLost)
        if base is not None and 0 < base < run.version and run.update_ids[base] == update.update_id:
            return base + 1
        if run.ended and status == record["status"]:
            return run.version
        if lease and owner is None:
            raise Refusal(LeaseLost)
        if not lease and status is not UNSET and self.live(run):
            raise Refusal(LeaseHeld)
        if base is not None and base != run.version:
            raise Refusal(VersionConflict)
        return None

    def _apply_with_callbacks(self, run: Run, effect: Effect) -> None:
        """Both may be wrong; which of the two the writer hears is the store's affair."""
        wrong: list[type[TenureError]] = []
        if not self._targets_known(run, effect.deliveries):
            wrong.append(StoreRejected)
        try:
            self._apply(run, effect)
        except Refusal as refusal:
            wrong += refusal.kinds
        if wrong:
            raise Refusal(*wrong)

    def _apply(self, run: Run, effect: Effect) -> None:
        record, changes = run.record, effect.changes
        was_ended = run.ended
        self._check_approval(record, changes.run)
        self._change_run(run, changes.run)
        if was_ended and changes.steps:
            raise Refusal(InvalidTransition)
        finished = False
        for index, change in changes.steps.items():
            finished |= change_step(record, run.reached, index, change)
        if finished:
            record["takeovers_without_progress"] = 0
        if run.ended and not was_ended:
            close_run(record, run.reached)
            if record["status"] in ("failed", "interrupted") and changes.run.last_error is UNSET:
                record["last_error"] = record["error"]

    def _check_approval(self, record: Plain, change: RunChange) -> None:
        approval = record["approval"]
        waits = approval["required"] and approval["at"] is None
        until = approval["expires_at"]
        late = waits and until is not None and self.clock.now() >= until
        wrong = (
            (waits and change.status == "running")
            or (change.approve is not UNSET and approval["at"] is None and (late or not waits))
            or (change.if_overdue and not late)
        )
        if wrong:
            raise Refusal(InvalidTransition)

    @staticmethod
    def _change_run(run: Run, change: RunChange) -> None:
        record, ended = run.record, run.ended
        texts: dict[str, Any] = {
            name: plain(value) for name in _TEXTS if (value := getattr(change, name)) is not UNSET
        }
        if ended and (texts or change.status is not UNSET or change.approve is not UNSET):
            raise Refusal(InvalidTransition)
        record.update(texts)
        if change.status is not UNSET and change.status != record["status"]:
            if change.status.value not in RUN_MAY[record["status"]]:
                raise Refusal(InvalidTransition)
            record["status"] = change.status.value
            record["started_at" if change.status == "running" else "finished_at"] = NOW
        if change.cancel is not UNSET and not ended and record["cancel_requested_at"] is None:
            record.update(cancel_requested_at=NOW, cancel_reason=change.cancel.reason)
        if change.approve is not UNSET and record["approval"]["at"] is None:
            record["approval"].update(by=change.approve.by, note=change.approve.note, at=NOW)
        known = {note["id"] for note in record["annotations"]}
        record["annotations"] += [
            {**plain(note), "at": NOW} for note in change.annotate if note.id not in known
        ]

    # Callbacks come into being with the write that owes them.

    @staticmethod
    def _targets_known(run: Run, deliveries: tuple[NewDelivery, ...]) -> bool:
        return {new.target for new in deliveries} <= {
            target["name"] for target in run.record["callbacks"]
        }

    def _enqueue(
        self, run: Run, events: tuple[Event, ...], deliveries: tuple[NewDelivery, ...]
    ) -> None:
        for new in deliveries:
            self.deliveries[new.id] = {
                "id": new.id,
                "run_id": run.record["run_id"],
                "target": new.target,
                "version": run.version,
                "seq": new.seq,
                "type": events[new.seq].type,
                "run_status": run.record["status"],
                "state": "waiting",
                "attempts": 0,
                "due_at": None,
                "settled_at": None,
                "last_error": None,
                "died_of": None,
                "redelivery": False,
                "token": None,
                "settled_token": None,
                "until": None,
            }
