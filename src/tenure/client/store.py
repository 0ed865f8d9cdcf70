"""``HttpStore``: the store behind a gateway, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, Self

from msgspec import Struct

from tenure.aio import end, pause
from tenure.client.errors import error_of, name_of, problem_in
from tenure.client.transport import TIMEOUT, HttpTransport, encoded, key_header, part
from tenure.model.codec import storable
from tenure.model.errors import (
    InvalidCursor,
    InvalidOptions,
    InvalidRunId,
    NotPermitted,
    NotSupported,
    RunNotFound,
    StoreIncompatible,
    StoreRejected,
    TenureError,
)
from tenure.model.ids import check_run_id
from tenure.model.leases import ClaimedRun, ClaimRequest, Lease, Purpose, Renewal
from tenure.model.query import MAX_PAGE, Page, RunFilter, bounded_limit
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget, RunSnapshot, RunSummary
from tenure.model.update import (
    Fencing,
    LeaseRequest,
    NewRun,
    Position,
    Receipt,
    RecordedEvent,
    Update,
    Write,
    run_id_of,
)
from tenure.ports.leases import WorkerInfo
from tenure.ports.store import LogKey, LogSlice
from tenure.runtime.options import RunOptions
from tenure.runtime.recipe import Definition
from tenure.runtime.reconciler import EndedRuns
from tenure.runtime.retry import RetryOptions
from tenure.wire.leases import (
    MAX_WRITES_BYTES,
    MOST_CLAIMED,
    MOST_RENEWED,
    Claims,
    GivenLease,
    GivenLeases,
    Heartbeat,
    HeldLease,
    LeaseClaim,
    Renewals,
    RenewalsRequest,
    Wakeup,
    WakeupRequest,
    WriteOutcome,
    WriteOutcomes,
)
from tenure.wire.output import (
    MAX_APPEND_BYTES,
    Appended,
    Chunk,
    NewChunk,
    OutputStreams,
    StoredDefinition,
)
from tenure.wire.runs import (
    AnnotateRequest,
    ApproveRequest,
    Cancellation,
    EventPage,
    NewCallback,
    Reconciled,
    ReconcileRequest,
    RetryRequest,
    RunPage,
    Submission,
    SubmitOptions,
    Workers,
)
from tenure.workflow.spec import CallbackSpec

# Lists of runs, read a page at a time.


async def listed(
    line: HttpTransport, path: str, where: RunFilter, limit: int, cursor: str | None
) -> Page[RunSummary]:
    """A page of runs. ``InvalidCursor``."""
    query = [*asked_for(where), ("limit", str(bounded_limit(limit)))]
    if cursor is not None:
        query.append(("cursor", cursor))
    try:
        for pair in query:
            "=".join(pair).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which equals nothing that is stored
        if cursor is not None and not cursor.isascii():
            raise InvalidCursor(f"{cursor!a} is not a cursor of this store") from None
        return Page()
    wrong = StoreIncompatible if cursor is None else InvalidCursor
    found = await line.ask("GET", path, RunPage, query=query, malformed=wrong)
    runs = tuple(run for run in found.runs if where.matches(run)) if _rest(where) else found.runs
    return Page(items=runs, cursor=found.cursor)


def asked_for(where: RunFilter) -> Iterator[tuple[str, str]]:
    for status in sorted(where.statuses):
        yield "status", status
    for key, value in where.labels.items():
        if _can_be_asked(key):
            yield "label", f"{key}={value}"
    named = {"workflow": where.workflow_name, "queue": where.queue, "owner": where.owner_id}
    for name, wanted in named.items():
        if wanted is not None:
            yield name, wanted
    window = {"created_from": where.created_from, "created_to": where.created_to}
    for name, moment in window.items():
        if moment is not None:
            yield name, moment.isoformat()
    if where.held:
        yield "held", "true"
    if where.unapproved:
        yield "unapproved", "true"
    if where.canceling:
        yield "canceling", "true"


def _rest(where: RunFilter) -> bool:
    """Whether a condition is left to be checked here."""
    return not all(map(_can_be_asked, where.labels))


def _can_be_asked(label: str) -> bool:
    """``key=value`` cannot express a label with an empty key, or with ``=`` in its key."""
    return bool(label) and "=" not in label


# Records of runs: ``RunStateStore`` and ``BatchUpdates``.


_BATCH_BYTES = 8 << 20
"""A batch larger than this is split into several requests; a single write may be larger."""
_MAX_BATCH_WRITES = 500


class RunsOverHttp:
    durable = True
    """Runs outlive this process, whatever the gateway keeps them in."""

    def __init__(self, line: HttpTransport) -> None:
        self._line = line

    async def create_run(self, new: NewRun) -> Receipt:
        return await self._alone(new)

    async def update_run(self, update: Update) -> Receipt:
        return await self._alone(update)

    async def _alone(self, write: Write) -> Receipt:
        (outcome,) = await self.update_runs([write])
        if isinstance(outcome, TenureError):
            raise outcome
        return outcome

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """Values that can never be stored are refused here, so that they do not harm others."""
        prepared = dict(enumerate(_prepared(writes)))
        outcomes: dict[int, Receipt | TenureError] = {
            number: refused
            for number, refused in prepared.items()
            if not isinstance(refused, bytes)
        }
        fine = {number: data for number, data in prepared.items() if isinstance(data, bytes)}
        for portion in _portions(fine):
            outcomes |= zip(portion, await self._send(writes, portion), strict=True)
        return [outcomes[number] for number in range(len(writes))]

    async def _send(
        self, writes: Sequence[Write], portion: dict[int, bytes]
    ) -> list[Receipt | TenureError]:
        body = b'{"writes":[%s]}' % b",".join(portion.values())
        if len(body) > MAX_WRITES_BYTES:  # a single large write
            said = f"is too large to be sent: {len(body)} bytes, of {MAX_WRITES_BYTES} at most"
            return [StoreRejected(run_id_of(writes[number]), said) for number in portion]
        try:
            answer = await self._line.ask("POST", "/v1/updates", WriteOutcomes, body=body)
        except NotPermitted as error:
            if not any(isinstance(writes[number], NewRun) for number in portion):
                raise
            return [copy(error) for _ in portion]  # no run begins that is only refused later
        return [self._outcome(each) for each in answer.outcomes]

    def _outcome(self, outcome: WriteOutcome) -> Receipt | TenureError:
        if outcome.receipt is not None:
            return outcome.receipt
        if outcome.problem is None:
            raise StoreIncompatible(f"{self._line.address} answered a write with nothing")
        return error_of(outcome.problem, self._line.address, InvalidRunId)

    async def get_run(self, run_id: str) -> RunSnapshot:
        path = f"/v1/runs/{known(run_id)}/record"
        return await self._line.ask("GET", path, RunSnapshot)

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runs", where, limit, cursor)


def known(run_id: str) -> str:
    """The id as a part of a path. ``RunNotFound`` for an invalid id: no run can have it, and in a
    path it might mean something else."""
    try:
        return part(check_run_id(run_id))
    except InvalidRunId:
        raise RunNotFound(run_id) from None


def _portions(written: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
    """Split into requests, in order."""
    portion: dict[int, bytes] = {}
    size = 0
    for number, data in written.items():
        if portion and (size + len(data) > _BATCH_BYTES or len(portion) == _MAX_BATCH_WRITES):
            yield portion
            portion, size = {}, 0
        portion[number] = data
        size += len(data)
    if portion:
        yield portion


def _prepared(writes: Sequence[Write]) -> Iterator[bytes | TenureError]:
    """At most one for each run, refused ones included."""
    seen: set[str] = set()
    for write in writes:
        try:
            run_id = run_id_of(write)
            if run_id in seen:
                raise StoreRejected(run_id, "is written twice in one batch")
            seen.add(run_id)
            storable(run_id, write)
            if isinstance(write, NewRun):
                check_run_id(run_id)
            else:
                known(run_id)
            yield encoded(write)
        except TenureError as error:
            yield error


# Ownership of runs: ``LeaseStore``.


_MAX_DEAD_OWNERS = 10_000


class LeasesOverHttp:
    def __init__(self, line: HttpTransport) -> None:
        self._line = line

    async def list_runnable(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        return await listed(self._line, "/v1/runnable", where, limit, cursor)

    async def claim_run(
        self, run_id: str, request: LeaseRequest, purpose: Purpose = Purpose.EXECUTE
    ) -> ClaimedRun:
        asked = LeaseClaim(
            owner_id=request.owner_id,
            lease_seconds=request.seconds,
            claim_id=request.claim_id,
            purpose=purpose,
            expired=request.expired,
        )
        path = f"/v1/runs/{known(run_id)}/lease"
        return _claimed(await self._line.ask("POST", path, GivenLease, body=encoded(asked)))

    async def claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        asked = Claims(
            owner_id=request.owner_id,
            lease_seconds=request.seconds,
            claim_id=request.claim_id,
            limit=min(request.limit, MOST_CLAIMED),
            queues=request.queues,
            purpose=request.purpose,
            expired=request.expired,
            dead_owners=tuple(sorted(request.dead_owners))[:_MAX_DEAD_OWNERS],
        )
        given = await self._line.ask("POST", "/v1/claims", GivenLeases, body=encoded(asked))
        return [_claimed(lease) for lease in given.leases]

    async def renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        sent = [_held(lease) for lease in leases if _may_exist(lease.run_id)]
        renewals: list[Renewal] = []
        for first in range(0, len(sent), MOST_RENEWED):
            some = tuple(sent[first : first + MOST_RENEWED])
            body = encoded(RenewalsRequest(leases=some, lease_seconds=seconds))
            answer = await self._line.ask("POST", "/v1/renewals", Renewals, body=body, apart=True)
            renewals += answer.renewals
        answers = iter(renewals)
        return [
            next(answers) if _may_exist(lease.run_id) else Renewal(run_id=lease.run_id, ok=False)
            for lease in leases
        ]

    async def release_lease(self, run_id: str, fencing: Fencing, update_id: str) -> None:
        query = [
            ("owner_id", fencing.owner_id),
            ("fence", str(fencing.fence)),
            ("update_id", update_id),
        ]
        await self._line.ask("DELETE", f"/v1/runs/{known(run_id)}/lease", dict, query=query)


def _claimed(given: GivenLease) -> ClaimedRun:
    lease = Lease(
        run_id=given.run_id,
        owner_id=given.owner_id,
        fence=given.fence,
        expires_at=given.expires_at,
    )
    return ClaimedRun(
        lease=lease, snapshot=given.snapshot, definition_digest=given.definition_digest
    )


def _may_exist(run_id: str) -> bool:
    try:
        known(run_id)
    except RunNotFound:
        return False
    return True


def _held(lease: Lease) -> HeldLease:
    return HeldLease(run_id=lease.run_id, owner_id=lease.owner_id, fence=lease.fence)


# Journal, definition and output: ``EventLog``, ``Definitions``, ``LogStore``, ``LogListing``.


_MAX_SEQ = 10**9


class RecordsOverHttp:
    def __init__(self, line: HttpTransport) -> None:
        self._line = line

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        path, events = f"/v1/runs/{known(run_id)}/events", list[RecordedEvent]()
        while len(events) < limit:
            size = min(limit - len(events), MAX_PAGE)
            query = [("limit", str(size)), *_after(events[-1].position if events else after)]
            page = await self._line.ask("GET", path, EventPage, query=query)
            events += page.events
            if len(page.events) < size:
                break
        return events

    async def get_definition(self, run_id: str) -> str | None:
        found = await self.definition(run_id)
        return found.stored if found else None

    async def definition(self, run_id: str) -> StoredDefinition | None:
        reply = await self._line.send("GET", f"/v1/runs/{known(run_id)}/definition")
        if reply.is_good:
            return reply.as_a(StoredDefinition)
        problem = problem_in(reply.status, reply.data)
        if name_of(problem) == "not-found":
            return None
        raise error_of(problem, self._line.address)

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        """Large data is sent in several requests, each of which can be repeated."""
        path, place = f"/v1/runs/{known(run_id)}/logs/chunk", offset
        while True:
            piece = data[place - offset : place - offset + MAX_APPEND_BYTES]
            chunk = NewChunk(
                owner_id=fencing.owner_id,
                fence=fencing.fence,
                step=key.step,
                host=key.host,
                stream=key.stream,
                item=key.item,
                attempt=key.attempt,
                offset=place,
                data=piece,
            )
            answer = await self._line.ask("POST", path, Appended, body=encoded(chunk))
            place += len(piece)
            if place == offset + len(data):
                return answer.size

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        query = [
            ("step", str(key.step)),
            ("host", key.host),
            ("stream", key.stream),
            ("attempt", str(key.attempt)),
            ("offset", str(offset)),
            ("limit", str(min(limit, MAX_APPEND_BYTES))),
        ]
        if key.item is not None:
            query.append(("item", str(key.item)))
        path = f"/v1/runs/{known(run_id)}/logs/chunk"
        found = await self._line.ask("GET", path, Chunk, query=query)
        return LogSlice(offset=found.offset, data=found.data, size=found.size)

    async def list_logs(self, run_id: str) -> list[LogKey]:
        found = await self._line.ask("GET", f"/v1/runs/{known(run_id)}/logs", OutputStreams)
        return [
            LogKey(
                step=each.step,
                host=each.host,
                stream=each.stream,
                item=each.item,
                attempt=each.attempt,
            )
            for each in found.streams
        ]


def _after(position: Position) -> list[tuple[str, str]]:
    """A place before or after all events of a version is written as a whole version."""
    version, seq = position
    if seq < 0:
        return [("after", str(version - 1))] if version > 0 else []
    return [("after", str(version) if seq >= _MAX_SEQ else str(position))]


# Workers and wake-ups: ``WorkerRegistry`` and ``Wakeups``.


_log = logging.getLogger("tenure.client")

_RETRY = RetryPolicy(attempts=2**62, delay=0.2, backoff=2.0, max_delay=10.0, jitter=0.5)


class PresenceOverHttp:
    def __init__(self, line: HttpTransport) -> None:
        self._line = line

    async def heartbeat(self, worker: WorkerInfo, seconds: float) -> None:
        path = f"/v1/workers/{part(worker.owner_id)}"
        if not seconds:
            await self._line.ask("DELETE", path, dict)
            return
        said = Heartbeat(
            seconds=seconds,
            queues=worker.queues,
            concurrency=worker.concurrency,
            running=worker.running,
            draining=worker.draining,
            details=worker.details,
        )
        await self._line.ask("POST", path, dict, body=encoded(said))

    async def list_workers(self) -> list[WorkerInfo]:
        found = await self._line.ask("GET", "/v1/workers", Workers)
        return [
            WorkerInfo(
                owner_id=each.owner_id,
                queues=each.queues,
                concurrency=each.concurrency,
                running=each.running,
                draining=each.draining,
                details=each.details,
                seen_at=each.seen_at,
            )
            for each in found.workers
        ]

    @asynccontextmanager
    async def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Long polling. Nothing is lost between two requests, as long as they reach the same
        gateway. If its store has no wake-ups, nothing is heard."""
        listening = asyncio.create_task(self._listen(sorted(topics), heard))
        try:
            yield
        finally:
            await end(listening)

    async def _listen(self, topics: list[str], heard: Callable[[], None]) -> None:
        after: str | None = None
        failures = 0
        while True:
            try:
                said = await self._ask(topics, after)
            except (NotPermitted, NotSupported) as error:
                _log.debug("no hints: %s", error)
                return
            except TenureError as error:
                _log.debug("hints are not heard: %s", error)
                failures += 1
                after = None
                await pause(_RETRY.wait_after(failures, luck=random.random()) or 0.0)  # noqa: S311
                continue
            failures = 0
            if said != after:
                after = said
                heard()

    async def _ask(self, topics: list[str], after: str | None) -> str:
        asked = WakeupRequest(topics=tuple(topics), after=after)
        answer = await self._line.ask(
            "POST", "/v1/wakeups", Wakeup, body=encoded(asked), wait=asked.wait, apart=True
        )
        return answer.after


class _Made(Struct):
    run_id: str


class VerbsOverHttp:
    """``RemoteOperations``. The token says in which name a run is changed: names in options are
    not sent."""

    def __init__(self, line: HttpTransport) -> None:
        self._line = line

    async def submit_run(
        self, definition: Definition, options: RunOptions, request_id: str
    ) -> RunSnapshot:
        """Callbacks that every run of this process has are the gateway's to add: those of its own
        settings."""
        if options.retry_of is not None:
            said = "the gateway makes retries itself: Runner.submit_retry asks for one"
            raise InvalidOptions([f"retry_of: {said}"])
        asked = SubmitOptions(
            run_id=options.run_id,
            vars=dict(options.vars),
            labels=dict(options.labels),
            callbacks=tuple(map(_callback, options.callbacks)),
            queue=options.queue,
            priority=options.priority,
            run_after=options.run_after,
            recovery=options.recovery,
            timeout=options.timeout,
            limit=tuple(options.limit),
            local=options.local,
            approve=options.approved_by is not None,
        )
        body = Submission(workflow=definition.workflow, files=definition.files, options=asked)
        return await self._made("/v1/runs", body, None if options.run_id else request_id)

    async def retry_run(self, run_id: str, options: RetryOptions, request_id: str) -> RunSnapshot:
        body = RetryRequest(
            run_id=options.run_id,
            only_failed=options.only_failed,
            from_step=options.from_step,
            again=tuple(options.again),
            limit=tuple(options.limit),
            approve=options.approved_by is not None,
        )
        path = f"/v1/runs/{known(run_id)}/retry"
        return await self._made(path, body, None if options.run_id else request_id)

    async def cancel_run(self, run_id: str, reason: str | None) -> RunSnapshot:
        return await self._told(run_id, "cancel", Cancellation(reason=reason))

    async def approve_run(self, run_id: str, note: str | None) -> RunSnapshot:
        return await self._told(run_id, "approve", ApproveRequest(note=note))

    async def annotate_run(self, run_id: str, data: dict[str, Any], request_id: str) -> RunSnapshot:
        said = AnnotateRequest(data=data)
        return await self._told(run_id, "annotate", said, key_header(request_id))

    async def end_abandoned_runs(self, reason: str) -> EndedRuns:
        body = encoded(ReconcileRequest(reason=reason))
        ended = await self._line.ask("POST", "/v1/reconcile", Reconciled, body=body)
        return EndedRuns(ended.interrupted, ended.expired, ended.canceled)

    async def _told(
        self, run_id: str, verb: str, said: object, headers: Mapping[str, str] = {}
    ) -> RunSnapshot:
        path, body = f"/v1/runs/{known(run_id)}/{verb}", encoded(said)
        return await self._line.ask("POST", path, RunSnapshot, body=body, headers=headers)

    async def _made(self, path: str, body: object, request_id: str | None) -> RunSnapshot:
        """A new run, as the store then has it. Without ``request_id`` the run is named already."""
        headers = key_header(request_id)
        made = await self._line.ask("POST", path, _Made, body=encoded(body), headers=headers)
        return await self._line.ask("GET", f"/v1/runs/{known(made.run_id)}/record", RunSnapshot)


def _callback(given: CallbackSpec | CallbackTarget) -> NewCallback:
    return NewCallback(
        url=given.url or "",
        events=tuple(given.events),
        secret_env=given.secret_env,
        headers=dict(given.headers),
    )


class HttpStore(RunsOverHttp, LeasesOverHttp, RecordsOverHttp, PresenceOverHttp, VerbsOverHttp):
    """A store behind a gateway. Connects when first used. ``token`` defaults to ``TENURE_TOKEN``;
    the gateway refuses what it does not permit with ``NotPermitted``.

    The gateway sends callbacks, marks abandoned runs and prunes old ones. A runner on this store
    changes runs by the gateway's verbs; ``create_run`` and ``update_run`` are for runs that the
    token has claimed, and for admins.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        super().__init__(HttpTransport(url, token, timeout=timeout))
        self._opened_with = (url, token, timeout)

    @property
    def attended_by(self) -> str:
        return f"the gateway at {self._line.address}"

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Self]:
        """With its own connections, which belong to the event loop that opens them."""
        url, token, timeout = self._opened_with
        async with type(self)(url, token, timeout=timeout) as apart:
            yield apart

    async def close(self) -> None:
        """May be called twice."""
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()
