"""Explains in one line why a run is not moving (``explain``); which workers are alive and how busy
they are (``present_workers``); how far this machine's clock is off the store's (``clock_offset``).

``explain`` reads the record only; the present time, whether the owner's process lives and which
workers there are, is passed in.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.snapshot import HostState, RunSnapshot, RunSummary, StepState
from tenure.model.status import HostStatus, Recovery, RunStatus, StepStatus
from tenure.ports.leases import OwnerListing, Presence, WorkerInfo, WorkerRegistry
from tenure.ports.store import RunStateStore, StoreClock
from tenure.runtime.owners import HANDED_OVER, NO_LONGER, OwnerDoubt, doubt_about, owner_label
from tenure.workflow.wording import listed


async def present_workers(
    store: RunStateStore, presence: Callable[[str], Presence]
) -> list[WorkerInfo] | None:
    """Registered workers without those whose process is known to be gone, each with the number of
    runs it owns by the store, since its heartbeat may be some seconds old. ``None``: the store
    keeps no register."""
    if not isinstance(store, WorkerRegistry):
        return None
    listed = await store.list_workers()
    there = [worker for worker in listed if presence(worker.owner_id) not in NO_LONGER]
    if not there or not isinstance(store, OwnerListing):
        return there
    held: Counter[str | None] = Counter()
    for each in await store.list_owners():
        held[each.owner_id] += each.runs
    return [replace(worker, running=held[worker.owner_id]) for worker in there]


def serving(queue: str, workers: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """Workers that take runs of ``queue``; draining ones take none."""
    return [worker for worker in workers if queue in worker.queues and not worker.draining]


MOST_HOSTS = 5


class Why(StrEnum):
    """For programs; people read the text."""

    ENDED = "ended"
    APPROVAL = "waits_for_approval"
    LATER = "waits_for_its_time"
    WORKER = "waits_for_a_worker"
    CLAIMED = "about_to_start"
    OWNER_LOST = "owner_lost"
    OWNER_SILENT = "owner_silent"
    CANCELING = "canceling"
    HOSTS = "waits_for_hosts"
    BETWEEN = "between_steps"


class Explanation(Struct, frozen=True, kw_only=True):
    run_id: str
    status: RunStatus
    reason: Why
    text: str
    """One line."""
    hosts: tuple[str, ...] = ()
    """Hosts it waits for, longest first."""
    retry_of: str | None = None
    lease_expires_at: datetime | None = None
    """When its owner's lease ends unless renewed; ``None`` without an owner."""


async def explain_run(
    store: RunStateStore, run_id: str, *, now: datetime, presence: Callable[[str], Presence]
) -> Explanation:
    """``presence`` tells whether the process of an owner id lives. Raises ``RunNotFound``."""
    run = await store.get_run(run_id)
    return await explain_as_read(store, run, now=now, presence=presence)


async def explain_as_read(
    store: RunStateStore, run: RunSnapshot, *, now: datetime, presence: Callable[[str], Presence]
) -> Explanation:
    """``now`` is used only where the store does not tell its time, which stamps the record and
    decides about leases and start times."""
    if isinstance(store, StoreClock):
        now = await store.store_time()
    doubt, workers = doubt_about(run, presence) or _not_begun(run, now, presence), None
    if not run.ended and (doubt is not None or run.owner_id is None):
        workers = await present_workers(store, presence)
    return explain(run, now, doubt=doubt, workers=workers)


def _was_claimed(run: RunSnapshot) -> bool:
    """Whether a worker has claimed the run and not begun it."""
    return run.status is RunStatus.QUEUED and run.owner_id is not None


def _not_begun(
    run: RunSnapshot, now: datetime, presence: Callable[[str], Presence]
) -> OwnerDoubt | None:
    """For a run that was claimed and never began: its lease may be over although the record does
    not list its owner as lost."""
    end = run.lease_expires_at
    if not _was_claimed(run) or run.owner_id is None or end is None or end > now:
        return None
    return OwnerDoubt.SILENT if presence(run.owner_id) is Presence.ALIVE else OwnerDoubt.UNHEARD


def explain(
    run: RunSnapshot,
    now: datetime,
    *,
    doubt: OwnerDoubt | None = None,
    workers: Sequence[WorkerInfo] | None = None,
) -> Explanation:
    """``workers``: those alive; ``None`` if the store keeps no register."""
    hosts: tuple[str, ...] = ()
    if run.ended:
        why, text = Why.ENDED, _ended(run, now)
    elif doubt is not None:
        why = Why.OWNER_SILENT if doubt is OwnerDoubt.SILENT else Why.OWNER_LOST
        text = f"{_owner_lost(run, doubt, now)}; {_what_next(run, doubt, workers)}"
    elif run.owner_id is None and run.cancel_requested_at is not None:
        asked = _cancel_asked(run, run.cancel_requested_at, now)
        then = "given back by its owner; the next worker, or tenure reconcile, marks it canceled"
        why, text = Why.CANCELING, f"{asked}; {then}"
    elif run.status is RunStatus.QUEUED:
        why, text = _queued(run, now, workers)
    elif run.owner_id is None:
        why, text = Why.WORKER, f"given back by its owner; {_worker_wanted(run, workers)}"
    else:
        hosts = tuple(name for step in run.steps for name in _awaited_hosts(step))
        why, text = _running(run, now)
    if doubt is None:
        text += _until_when(run, now)
    if run.retry_of is not None:
        text += f" (a retry of {run.retry_of})"
    return Explanation(
        run_id=run.run_id,
        status=run.status,
        reason=why,
        text=" ".join(text.split()),
        hosts=hosts,
        retry_of=run.retry_of,
        lease_expires_at=run.lease_expires_at,
    )


def _until_when(run: RunSummary, now: datetime) -> str:
    """When the owner's lease ends. Empty if it seems to be over: the store did not report that, and
    a clock may have been set meanwhile."""
    end = run.lease_expires_at
    if end is None or end <= now:
        return ""
    return f"; its lease ends in {_coarse((end - now).total_seconds())}"


def _ended(run: RunSummary, now: datetime) -> str:
    when = f" {_ago(run.finished_at, now)}" if run.finished_at else ""
    said = end_reason(run)
    text = f"ended as {run.status}{when}" + (f": {said}" if said else "")
    if run.unconfirmed_hosts:
        named = listed(run.unconfirmed_hosts, MOST_HOSTS)
        text += f"; the end of its tasks on {named} was not confirmed"
    return text


def end_reason(run: RunSummary) -> str | None:
    """Why it ended as it did: the recorded reason, error or message; ``None`` for a success."""
    if not run.ended or run.status is RunStatus.SUCCESS:
        return None
    if run.status is RunStatus.CANCELED:
        return run.cancel_reason or run.message
    return run.interrupted_reason or (run.error.message if run.error else run.message)


def _owner_lost(run: RunSummary, doubt: OwnerDoubt, now: datetime) -> str:
    if run.owner_id is None:
        return "it has no owner"
    owner = f"its owner, {owner_label(run.owner_id)},"
    if doubt is OwnerDoubt.GONE:
        return f"{owner} is gone"
    end = run.lease_expires_at
    if _let_go(run, doubt):
        return f"{owner} is alive but no longer holds it"
    over = f"which ended {_ago(end, now)}" if end is not None and end <= now else "which is over"
    if doubt is OwnerDoubt.SILENT:
        return f"{owner} is alive but did not renew its lease, {over}: frozen, or cut off"
    return f"{owner} did not renew its lease, {over}"


def _let_go(run: RunSummary, doubt: OwnerDoubt) -> bool:
    """In a store whose leases never expire: there no run is taken from a live owner."""
    return doubt is OwnerDoubt.SILENT and run.lease_expires_at is None


def _what_next(run: RunSummary, doubt: OwnerDoubt, workers: Sequence[WorkerInfo] | None) -> str:
    """Commands that have just started leave a merely expired lease alone."""
    by = "the next reconcile" if doubt is OwnerDoubt.GONE else "tenure reconcile"
    if _let_go(run, doubt):
        by += " (once that process is gone)"
    if run.cancel_requested_at is not None:
        return f"it was asked to stop and will be marked canceled by {by}"
    unserved = workers is not None and not serving(run.queue, workers)
    queued = run.status is RunStatus.QUEUED
    if run.recovery is Recovery.RESUME:
        goes_on = f"the next worker {'begins' if queued else 'continues'} it"
        return _worker_wanted(run, workers) if unserved else goes_on
    if queued and not unserved:  # whichever comes first
        return f"the next worker begins it, or {by} marks it interrupted"
    return f"{by} marks it interrupted"


def _queued(
    run: RunSummary, now: datetime, workers: Sequence[WorkerInfo] | None
) -> tuple[Why, str]:
    if run.owner_id is not None:
        owner = owner_label(run.owner_id)
        if run.cancel_requested_at is None:
            return Why.CLAIMED, f"claimed by {owner}, about to start"
        asked = _cancel_asked(run, run.cancel_requested_at, now)
        return Why.CANCELING, f"{asked}; {owner} has claimed it, and ends it before anything begins"
    approval = run.approval
    if approval.required and approval.by is None:
        if approval.expires_at is None:
            return Why.APPROVAL, "queued until it is approved"
        if approval.expires_at <= now:
            return Why.APPROVAL, f"the time to approve it ended {_ago(approval.expires_at, now)}"
        left = _coarse((approval.expires_at - now).total_seconds())
        return Why.APPROVAL, f"queued until it is approved, for {left} more"
    if run.run_after is not None and run.run_after > now:
        left = _coarse((run.run_after - now).total_seconds())
        return Why.LATER, f"queued until {run.run_after:%Y-%m-%d %H:%M:%S} UTC, in {left}"
    wanted = _worker_wanted(run, workers)
    if approval.required:
        by = f"approved by {approval.by}"
        return Why.WORKER, f"{by}; {wanted}; tenure approve {run.run_id} runs it at once"
    return Why.WORKER, f"queued; {wanted}"


def _worker_wanted(run: RunSummary, workers: Sequence[WorkerInfo] | None) -> str:
    if workers is None:
        return f"waits for a worker of queue {run.queue!r}"
    takers = serving(run.queue, workers)
    if not takers:
        return _no_worker(run.queue, sum(run.queue in worker.queues for worker in workers))
    free = sum(worker.running < worker.concurrency for worker in takers)
    state = f"{free} free" if free else "all busy"
    if len(takers) == 1:
        return f"waits for the worker of queue {run.queue!r}, {'free' if free else 'busy'}"
    return f"waits for one of {len(takers)} workers of queue {run.queue!r}, {state}"


def _no_worker(queue: str, stopping: int) -> str:
    start = f"tenure worker --queue {shlex.quote(queue)}"
    if not stopping:
        return f"no worker serves queue {queue!r}; start one: {start}"
    them = "the only worker" if stopping == 1 else f"all {stopping} workers"
    are = "is" if stopping == 1 else "are"
    return f"{them} of queue {queue!r} {are} stopping; start another: {start}"


def _running(run: RunSnapshot, now: datetime) -> tuple[Why, str]:
    owner = owner_label(run.owner_id)
    steps = [step for step in run.steps if step.status is StepStatus.RUNNING]
    awaited = "; ".join(_awaited(step, now) for step in steps[:3])
    if run.cancel_requested_at is not None:
        asked = _cancel_asked(run, run.cancel_requested_at, now)
        return Why.CANCELING, f"{asked}; {owner} ends what runs: {awaited or 'nothing any more'}"
    if awaited:
        return Why.HOSTS, f"running on {owner}: {awaited}"
    return Why.BETWEEN, f"running on {owner}, between two steps"


def _cancel_asked(run: RunSummary, at: datetime, now: datetime) -> str:
    reason = f" ({run.cancel_reason})" if run.cancel_reason else ""
    return f"cancel requested {_ago(at, now)}{reason}"


def _awaited(step: StepState, now: datetime) -> str:
    running = running_hosts(step)
    pending = sum(host.status is HostStatus.PENDING for host in step.hosts.values())
    unknown = _unknown(step)
    if not running and unknown:
        return f"step {step.name!r}: {unknown}"
    if not running:
        return f"step {step.name!r} is about to start {pending} host{'s' * (pending != 1)}"
    named = [_host(name, host, now) for name, host in running[:MOST_HOSTS]]
    if len(running) > MOST_HOSTS:
        named.append(f"{len(running) - MOST_HOSTS} more")
    awaited_hosts = f"{len(running)} of {len(step.hosts)} hosts:" if len(step.hosts) > 1 else "host"
    text = f"step {step.name!r} waits for {awaited_hosts} {', '.join(named)}"
    if unknown:
        text += f"; {unknown}"
    if not pending:
        return text
    return f"{text}; {pending} {'has' if pending == 1 else 'have'} not started"


def _awaited_hosts(step: StepState) -> list[str]:
    unknown = unknown_hosts(step) if step.status is StepStatus.RUNNING else []
    return [*(name for name, _ in running_hosts(step)), *unknown]


def _unknown(step: StepState) -> str:
    """Hosts whose result is unknown although the run has an owner: they are being probed, or about
    to be given back."""
    names = unknown_hosts(step)
    if not names:
        return ""
    one = len(names) == 1
    named = listed(names, MOST_HOSTS)
    if all(step.hosts[name].message == HANDED_OVER for name in names):
        return f"{named} {'was' if one else 'were'} {HANDED_OVER}"
    are, whose = ("is", "its") if one else ("are", "their")
    return f"{named} {are} being verified after {whose} worker was lost"


def _host(name: str, host: HostState, now: datetime) -> str:
    facts = []
    if host.started_at is not None:
        facts.append(f"for {_coarse((now - host.started_at).total_seconds())}")
    said = _said_of(host)
    if said is not None:
        facts.append(said)
    elif host.attempts > 1:
        facts.append(f"attempt {host.attempts}")
    return f"{name} ({', '.join(facts)})" if facts else name


def _said_of(host: HostState) -> str | None:
    """The message of a running host, or of its running loop item."""
    at_work = (item for item in (*host.items, host) if item.status is HostStatus.RUNNING)
    return next((item.message for item in at_work if item.message), None)


def unknown_hosts(step: StepState) -> list[str]:
    return [name for name, host in step.hosts.items() if host.status is HostStatus.UNKNOWN]


def running_hosts(step: StepState) -> list[tuple[str, HostState]]:
    """Longest running first."""
    running = [
        (name, host) for name, host in step.hosts.items() if host.status is HostStatus.RUNNING
    ]
    return sorted(running, key=lambda each: _began(each[1]))


def _began(host: HostState) -> tuple[bool, float]:
    at = host.started_at
    return at is None, at.timestamp() if at is not None else 0.0


def _ago(then: datetime, now: datetime) -> str:
    return f"{_coarse((now - then).total_seconds())} ago"


def _coarse(seconds: float) -> str:
    """A duration with one number and unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(int(seconds), 0)}s"


_CLOCK_SAMPLES = 7


class ClockSample(NamedTuple):
    asked_at: datetime
    """By the local clock."""
    store_time: datetime
    took: float
    """Seconds, there and back."""


async def clock_offset(store: StoreClock, now: Callable[[], datetime]) -> float:
    """Seconds by which the store's clock is ahead. Ownership does not depend on it; the times of
    logs and callbacks, ``--after`` and ``--since`` do."""
    loop, answers = asyncio.get_running_loop(), []
    for _ in range(_CLOCK_SAMPLES):
        asked_at, start = now(), loop.time()
        store_time = await store.store_time()
        answers.append(ClockSample(asked_at, store_time, loop.time() - start))
    return offset(answers)


def offset(answers: Sequence[ClockSample]) -> float:
    """By the quickest answer, assuming it was given half-way: the error is at most half of its
    round trip."""
    quickest = min(answers, key=lambda answer: answer.took)
    halfway = quickest.asked_at + timedelta(seconds=quickest.took / 2)
    return (quickest.store_time - halfway).total_seconds()
