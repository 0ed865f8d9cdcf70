"""A plain model of a store: records as dictionaries, and the effect of each call.

It shares values (updates, errors) with ``tenure.model`` and no decision, so that it finds mistakes
there."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from msgspec import UNSET, Struct

from tenure.model.errors import (
    DeliveryLost,
    DeliveryNotFound,
    InvalidRunId,
    InvalidTransition,
    LeaseHeld,
    LeaseLost,
    NotRunnable,
    RunExists,
    RunNotFound,
    StoreRejected,
    TenureError,
    VersionConflict,
)
from tenure.model.leases import ClaimRequest, Lease, Purpose
from tenure.model.outbox import Delivered, GiveUp, Outcome, PutBack, RetryLater
from tenure.model.update import (
    Effect,
    Event,
    Fencing,
    HostChange,
    ItemChange,
    LeaseRequest,
    NewDelivery,
    NewRun,
    RunChange,
    StepChange,
    Update,
)
from tenure.ports.environment import BootTime, Clock
from tenure.ports.store import LogKey

# Records as plain data, and the status rules as tables.

Plain = dict[str, Any]

NOW = "<the instant of this write>"
"""Placeholder for the store's time of a write, until the record is read."""

RUN_ENDS = frozenset({"success", "failed", "canceled", "interrupted"})
STEP_ENDS = RUN_ENDS | {"skipped"}
HOST_ENDS = STEP_ENDS | {"unreachable"}

RUN_MAY = {
    "queued": frozenset({"running", "failed", "canceled", "interrupted"}),
    "running": RUN_ENDS,
}
STEP_MAY = {
    "pending": frozenset({"running", "skipped", "canceled", "interrupted"}),
    "running": STEP_ENDS,
}
HOST_MAY = {
    "pending": frozenset({"running", "skipped", "canceled", "interrupted", "unreachable"}),
    "running": HOST_ENDS | {"unknown"},
    "unknown": HOST_ENDS | {"running"},
}

# When a run ends: what was never reached, and what was running.
UNREACHED = {
    "success": "skipped",
    "failed": "skipped",
    "skipped": "skipped",
    "canceled": "canceled",
    "interrupted": "interrupted",
}
HOST_CUT = {"failed": "unknown", "canceled": "unknown", "interrupted": "interrupted"}


def plain(value: Any) -> Any:
    """Dicts, lists, strings and numbers; times stay times."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def stamped(value: Any, at: datetime) -> Any:
    """``value`` with every ``NOW`` replaced."""
    if isinstance(value, dict):
        return {key: stamped(item, at) for key, item in value.items()}
    if isinstance(value, list):
        return [stamped(item, at) for item in value]
    return at if value == NOW else value


def differences(expected: Any, seen: Any, where: str = "") -> Iterator[str]:
    """Every place where the two disagree, in words."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key in {**expected, **seen}:
            place = f"{where}.{key}".lstrip(".")
            if key not in seen or key not in expected:
                yield f"{place} is only in {'the model' if key in expected else 'the store'}"
            else:
                yield from differences(expected[key], seen[key], place)
    elif isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        for position, (one, other) in enumerate(zip(expected, seen, strict=True)):
            yield from differences(one, other, f"{where}[{position}]")
    elif expected != seen:
        yield f"{where}: the model says {expected!r}, the store {seen!r}"


def check_same(what: str, expected: Any, seen: Any) -> None:
    found = list(differences(expected, seen))
    assert not found, f"{what}:\n  " + "\n  ".join(found)


# Changes of steps and hosts.

Reached = set[tuple[int, str | None]]
"""Steps (host ``None``) and hosts whose status was set; only these are counted."""

_ITEM_FIELDS = (
    "message",
    "kind",
    "exit_code",
    "attempts",
    "changed",
    "stdout",
    "stderr",
    "truncated",
    "vars",
    "withheld",
)


class Refusal(Exception):
    """The model refuses; the store must raise one of ``kinds``."""

    def __init__(self, *kinds: type[TenureError]) -> None:
        super().__init__(" or ".join(kind.__name__ for kind in kinds))
        self.kinds = kinds


def fresh_item() -> Plain:
    return {
        "status": "pending",
        "message": None,
        "kind": None,
        "exit_code": None,
        "attempts": 0,
        "changed": None,
        "started_at": None,
        "finished_at": None,
        "stdout": None,
        "stderr": None,
        "truncated": False,
        "vars": {},
        "withheld": [],
    }


def fresh_host() -> Plain:
    return {**fresh_item(), "items": []}


def change_step(record: Plain, reached: Reached, index: int, change: StepChange) -> bool:
    """Apply one step's change; true if a host finished by it."""
    steps: list[Plain] = record["steps"]
    if index >= len(steps):
        _need(index == len(steps))
        steps.append(_planned(index, change))
    step = steps[index]
    status = step["status"] if change.status is UNSET else change.status.value
    moves = status != step["status"]
    if moves:
        _need(status in STEP_MAY.get(step["status"], ()))
        step["status"] = status
        step["started_at" if status == "running" else "finished_at"] = NOW
        reached.add((index, None))
    elif step["status"] in STEP_ENDS:
        _need(change.message is UNSET and not change.hosts)
    if change.message is not UNSET:
        step["message"] = change.message
    finished = False
    for name, host_change in change.hosts.items():
        _need(step["status"] != "pending" and name in step["hosts"])
        host = step["hosts"][name]
        before = host["status"]
        _change_host(host, host_change)
        if host["status"] != before:
            reached.add((index, name))
            finished |= host["status"] in HOST_ENDS
    if step["status"] in STEP_ENDS:
        _need(all(host["status"] != "running" for host in step["hosts"].values()))
        _close_hosts(step)
    return finished


def _planned(index: int, change: StepChange) -> Plain:
    _need(change.plan is not None)
    step: Plain = plain(change.plan)
    return {
        **step,
        "index": index,
        "status": "pending",
        "message": None,
        "started_at": None,
        "finished_at": None,
        "hosts": {name: fresh_host() for name in step["hosts"]},
    }


def _change_host(host: Plain, change: HostChange) -> None:
    """A host in a change has been started."""
    _change_item(host, change)
    _need(host["status"] != "pending")
    for position, item_change in sorted(change.items.items()):
        _need(0 <= position <= len(host["items"]))
        if position == len(host["items"]):
            host["items"].append(fresh_item())
        _change_item(host["items"][position], item_change)
    if host["status"] != "running":
        _close_items(host)


def _close_items(host: Plain) -> None:
    """Items follow their host; of one that succeeded or failed all items must be known."""
    end = host["status"]
    for item in host["items"]:
        if item["status"] == "running":
            _need(end in ("canceled", "interrupted", "unreachable", "unknown"))
            item.update(status=end, finished_at=host["finished_at"])
        elif item["status"] == "pending" and end != "unknown":
            known = UNREACHED.get(end, end)
            item.update(status=known, finished_at=host["finished_at"])


def _change_item(item: Plain, change: ItemChange) -> None:
    status = item["status"] if change.status is UNSET else change.status.value
    _need(item["status"] not in HOST_ENDS)
    for name in _ITEM_FIELDS:
        value: Any = getattr(change, name)
        if value is not UNSET:
            item[name] = plain(value)
    if status == item["status"]:
        return
    _need(status in HOST_MAY[item["status"]])
    item["status"] = status
    item["finished_at"] = None if status == "running" else NOW
    if status == "running":
        item["started_at"] = NOW


def close_run(record: Plain, reached: Reached) -> None:
    """Nothing is left pending or running in a run that ended."""
    end = record["status"]
    assert end in RUN_ENDS
    cut: set[str] = set()
    for index, step in enumerate(record["steps"]):
        for name, host in step["hosts"].items():
            if host["status"] == "running":
                _need(end != "success")
                host.update(status=HOST_CUT[end], finished_at=NOW)
                reached.add((index, name))
                cut.add(name)
                _end_items(host, end)
            elif host["status"] == "unknown":
                _end_items(host, end)
        if step["status"] == "running":
            _need(end != "success")
            step.update(status=end, finished_at=NOW)
            reached.add((index, None))
        elif step["status"] == "pending":
            step.update(status=UNREACHED[end], finished_at=NOW)
        _close_hosts(step)
    if end == "canceled" and cut:
        record["unconfirmed_hosts"] = sorted({*record["unconfirmed_hosts"], *cut})


def _end_items(host: Plain, end: str) -> None:
    """The run is over: open items are closed."""
    for item in host["items"]:
        if item["status"] == "running":
            item.update(status=host["status"], finished_at=NOW)
        elif item["status"] == "pending":
            item.update(status=UNREACHED[end], finished_at=NOW)


def _close_hosts(step: Plain) -> None:
    for name, host in step["hosts"].items():
        if host["status"] == "pending":
            end = {"status": UNREACHED[step["status"]], "finished_at": step["finished_at"]}
            step["hosts"][name] = {**fresh_host(), **end}


def counts(record: Plain, reached: Reached) -> Plain:
    by_step: dict[str, int] = {}
    by_host: dict[str, int] = {}
    for index, name in reached:
        step = record["steps"][index]
        tally, status = (
            (by_step, step["status"]) if name is None else (by_host, step["hosts"][name]["status"])
        )
        tally[status] = tally.get(status, 0) + 1
    return {
        "steps": by_step,
        "hosts": by_host,
        "steps_total": len(record["steps"]),
        "hosts_total": sum(len(step["hosts"]) for step in record["steps"]),
    }


def _need(allowed: bool) -> None:
    if not allowed:
        raise Refusal(InvalidTransition)


# Runs.

_TEXTS = ("message", "error", "last_error", "interrupted_reason", "unconfirmed_hosts")
_SECOND = 1_000_000_000


class Run:
    """One run: its record, lease, journal and update ids."""

    def __init__(self, number: int, new: NewRun) -> None:
        self.number = number
        self.definition = new.definition
        self.record: Plain = plain(new.snapshot)
        self.reached: Reached = set()
        self.until: BootTime | None = None
        self.until_walls: set[datetime] = set()
        """The same end in wall time, by the wall clock at each renewal."""
        self.claim_id: str | None = None
        self.update_ids: list[str] = []
        self.events: list[Plain] = []
        self.unread = False
        """Written since the last read: the time of that write is unknown."""
        self.strictly_later = True
        self.last_seen: Plain = {}

    @property
    def version(self) -> int:
        return int(self.record["version"])

    @property
    def ended(self) -> bool:
        return self.record["status"] in RUN_ENDS

    def learn(self, at: datetime) -> None:
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
        """Without leases, a run's first owner holds it until it releases it."""
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
        """Allowed answers: the end in wall time when the lease was given, or by the present wall
        clock; for a lease of another boot, now."""
        if run.until is None:
            return {None}
        boot_id, nanoseconds = self.clock.boot_time()
        same_boot = run.until.boot_id == boot_id
        left = (run.until.nanoseconds - nanoseconds) // 1000 if same_boot else 0
        return {*run.until_walls, self.clock.now() + timedelta(microseconds=left)}

    # Create.

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
        """Also: an unapproved run is queued and without an owner."""
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
            # With two errors, either may be raised.
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

    # Update.

    def update(self, update: Update) -> int:
        """The version of the receipt; a new one if the model has changed."""
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
        """In the order of ``model.decide.CHECKS``. A number is an answer that writes nothing."""
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
        """Both may be wrong; the store may report either."""
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

    # Callbacks are created with their event's write.

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


class LeaseModel(RunModel):
    def runnable(self, run: Run, purpose: Purpose = Purpose.EXECUTE) -> bool:
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
        """Raises fence and version; a takeover if the run still had an owner."""
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
        """``expired`` false: only a lease from before a reboot."""
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
    """By priority, then oldest; rarely the oldest of all.

    Which claim is the tenth is up to the store: here at most one in ten, rounded up.
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


class StoreModel(LeaseModel):
    def __init__(self, clock: Clock, *, leases: bool = True) -> None:
        super().__init__(clock, leases=leases)
        self.logs: dict[tuple[str, LogKey], bytes] = {}
        self.deaths: list[str] = []
        """Dead letters by id, in order of death; removed by a redelivery."""

    def due(self) -> list[Plain]:
        """Claimable: the first unsettled of each run and target, if due and not held."""
        lanes: dict[tuple[str, str], list[Plain]] = {}
        for delivery in self.deliveries.values():
            if delivery["state"] == "waiting":
                lanes.setdefault((delivery["run_id"], delivery["target"]), []).append(delivery)
        return [
            head
            for lane in lanes.values()
            if not any(self.in_flight(one) for one in lane)
            for head in (min(lane, key=lambda one: (one["version"], one["seq"])),)
            if not self.not_over(head["until"])
        ]

    def in_flight(self, delivery: Plain) -> bool:
        return delivery["token"] is not None and self.not_over(delivery["until"])

    def held_by(self, token: str) -> list[Plain]:
        return [
            delivery
            for delivery in self.deliveries.values()
            if delivery["token"] == token and delivery["state"] == "waiting"
        ]

    def settle(self, delivery_id: str, token: str, outcome: Outcome) -> Plain:
        delivery = self._delivery(delivery_id)
        if delivery["settled_token"] == token:
            return delivery
        if delivery["token"] != token:
            raise Refusal(DeliveryLost)
        delivery["attempts"] += not isinstance(outcome, PutBack)
        delivery.update(token=None, settled_token=token, until=None)
        match outcome:
            case Delivered():
                delivery.update(state="delivered", settled_at=NOW, last_error=None)
                self._leave_dead(delivery_id)
            case GiveUp(error):
                delivery.update(state="dead", settled_at=NOW, last_error=error, died_of=error)
                self._leave_dead(delivery_id)
                self.deaths.append(delivery_id)
            case RetryLater(delay, error):
                delivery.update(due_at=None, until=self.lease_end(delay), last_error=error)
        return delivery

    def _leave_dead(self, delivery_id: str) -> None:
        if delivery_id in self.deaths:
            self.deaths.remove(delivery_id)

    def requeue(self, delivery_id: str) -> Plain:
        delivery = self._delivery(delivery_id)
        if delivery["state"] != "waiting":
            delivery.update(
                state="waiting",
                attempts=0,
                due_at=None,
                settled_at=None,
                redelivery=True,
                settled_token=None,
            )
        return delivery

    def _delivery(self, delivery_id: str) -> Plain:
        if delivery_id not in self.deliveries:
            raise Refusal(DeliveryNotFound)
        return self.deliveries[delivery_id]

    def callback_errors(self, run: Run) -> Iterator[Plain | None]:
        """Dead letters that the run may show; ``None`` is none.

        The newest, or several if they died at one time or the wall clock was set back. One waiting
        to be sent again may still show, with the error it died of or a later one.
        """
        mine = [self.deliveries[name] for name in self.deaths]
        mine = [one for one in mine if one["run_id"] == name_of(run)]
        dead = [one for one in mine if one["state"] == "dead"]
        for one in mine:
            if one["state"] == "waiting" or one["settled_at"] >= dead[-1]["settled_at"]:
                for error in (one["died_of"], one["last_error"]):
                    yield {"target": one["target"], "event": one["type"], "error": error}
        if not dead:
            yield None

    # Output.

    def append(self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes) -> int:
        if not self.holds(self.find(run_id), fencing):
            raise Refusal(LeaseLost)
        stream = self.logs.get((run_id, key), b"")
        if offset > len(stream) or not data.startswith(stream[offset : offset + len(data)]):
            raise Refusal(StoreRejected)
        self.logs[run_id, key] = stream[:offset] + data + stream[offset + len(data) :]
        return len(self.logs[run_id, key])


def name_of(run: Run) -> str:
    return str(run.record["run_id"])
