"""``RunStateStore``, which every store must implement, and the optional powers of a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.model.leases import Beginning, LeaseToken, WaitingRun
from tenure.model.query import Page, RunFilter
from tenure.model.snapshot import RunSnapshot, RunSummary
from tenure.model.status import RunStatus
from tenure.model.tokens import Token
from tenure.model.update import (
    FeedPage,
    Fencing,
    NewRun,
    Position,
    Receipt,
    RecordedEvent,
    Update,
    Write,
)
from tenure.ports.execution import Command, Endpoint, Exit, Output, Transport


@runtime_checkable
class RunStateStore(Protocol):
    """Keeps run records, keyed by ``run_id``.

    Duties of every method:

    *Atomic.* A write happens whole (state, journal row, deliveries) or not at all, and is
    durable when the call returns if ``durable`` is true. A reader sees one version, never a mix.

    *Decided by the model.* What a write does is decided by ``model.leases.create`` and
    ``model.decide.decide``: a store supplies atomicity, its clock, and storage, no rules.

    *Repeatable.* After ``StoreUnavailable``, or a cancelled call, the caller does not know whether
    the write happened; it sends the same ``update_id`` again and gets the first answer. A cancelled
    call may therefore have been applied, but never half.

    *Independent.* Returned values share no memory with the store.

    *Errors* are those of ``model.errors``; a driver's exception never leaks.
    """

    durable: bool
    """Whether runs survive the end of this process."""

    async def create_run(self, new: NewRun) -> Receipt:
        """Store a new run at version 1.

        The store stamps all times, sets ``fence`` to 1 and the owner if ``new.lease`` is given
        (0 and no owner otherwise), and keeps ``new.definition``.

        ``InvalidRunId`` or ``StoreRejected`` for values that can never be stored; ``RunExists``
        for a used id, with nothing changed; the first answer if that run was created by the same
        ``update_id``, but ``LeaseLost`` if it was created with a lease that has been lost since.
        """
        ...

    async def update_run(self, update: Update) -> Receipt:
        """Apply a delta. ``RunNotFound``, then the refusals of ``model.decide.judge`` in its order.

        An accepted update raises ``version`` by one and appends one journal row holding its
        ``update_id`` and events. A refused one leaves no trace.
        """
        ...

    async def get_run(self, run_id: str) -> RunSnapshot:
        """The newest snapshot. ``RunNotFound``.

        ``owner_lost`` and ``lease_expires_at`` are judged by the store's clock at this moment.
        """
        ...

    async def list_runs(
        self, where: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Summaries, newest first, in pages.

        A run that exists when the first page is read and stays matching is on exactly one page,
        whatever is inserted meanwhile. ``InvalidCursor`` for a cursor made elsewhere.
        """
        ...


@runtime_checkable
class BatchUpdates(Protocol):
    """Many writes in one commit. Without it, updates are sent one by one."""

    async def update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        """Apply creations and updates of different runs; one outcome each, in order.

        At most one write per run: a second one for the same run is answered ``StoreRejected``.
        One refused or malformed write never harms another; its error is returned in its place,
        exactly the error the single call would raise. All accepted ones are durable when the call
        returns. Raises only ``StoreUnavailable``, after which any of them may have been applied:
        send the same writes again.
        """
        ...


@runtime_checkable
class ParallelBatches(BatchUpdates, Protocol):
    """Without it, one batch waits for the previous one."""

    @property
    def batches_at_once(self) -> int:
        """How many calls of ``update_runs`` can run at the same time."""
        ...


@runtime_checkable
class Beginnings(Protocol):
    """Claim and begin a run in one write. Without it a run is claimed first, and begins with its
    owner's next update, one commit later.

    For a single waiting run. Many runs at once are claimed instead: if several workers saw the same
    waiting runs, only one of them could begin each.
    """

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        """The first runs without an owner that a claim of these queues would get now, begun or not,
        in the order of claims. Nothing is claimed or locked."""
        ...

    async def begin_run(self, beginning: Beginning) -> Receipt:
        """Claim and first update in one commit and one version, as ``model.leases.begin`` decides.

        ``RunNotFound``; ``LeaseHeld``, ``VersionConflict`` or ``NotRunnable`` if the run has
        changed since it was read: then nothing was written. The same ``update_id`` again gets the
        first answer, or ``LeaseLost`` if the run has another owner by now.
        """
        ...


@runtime_checkable
class Definitions(Protocol):
    """Workflows of runs. Without it no run can be taken over or retried by another process."""

    async def get_definition(self, run_id: str) -> str | None:
        """The exact text given at creation, ``None`` if none was. ``RunNotFound``."""
        ...


@runtime_checkable
class EventLog(Protocol):
    """A run's history. Without it there is only the newest snapshot, nothing to stream."""

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        """Events after ``after``, oldest first, in order of (version, seq). ``RunNotFound``.

        A version that is readable in ``get_run`` has all its events here.
        """
        ...


@runtime_checkable
class RunVersions(Protocol):
    """Versions of many runs. Without it a gateway queries each watched run."""

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        """The versions of the runs that exist, in one query. ``EventLog`` has all events of each
        version by then.
        """
        ...


@runtime_checkable
class ChangeFeed(Protocol):
    """The histories of all runs as one. Without it a follower of many runs queries each."""

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        """Events of all runs after a cursor, or from the beginning; at most ``limit`` versions.

        *Nothing is lost.* A change that becomes readable late, because its commit was slower than
        others, comes after every cursor handed out until then. Along the cursors each event comes
        once, each version whole, and the versions of one run in order. Runs may be interleaved in
        any way. Events of runs that were pruned may be missing.

        A feed lags behind by the longest write in progress in the database. ``InvalidCursor``.
        """
        ...

    async def newest_change(self) -> str:
        """A cursor for everything that happens from now on; a few earlier changes may come as
        well."""
        ...


class QueueLength(Struct, frozen=True, kw_only=True):
    """The claimable runs of one queue, not counting those released or lost by an owner."""

    queue: str
    runs: int
    oldest_seconds: float
    """How long the run that became ready first has waited."""


class Census(Struct, frozen=True, kw_only=True):
    """Counts of runs, callbacks and waiting work, for metrics."""

    runs: dict[RunStatus, int]
    """By every status there is."""
    callbacks_waiting: int
    callbacks_dead: int
    queues: tuple[QueueLength, ...]
    """By name; an empty queue may be missing."""


@runtime_checkable
class CensusTaking(Protocol):
    """Counting. Without it metrics cannot be had except by listing."""

    async def take_census(self, *, most: int = 10_000) -> Census:
        """Each number as it is, or ``most`` if it is larger, so that a census every few seconds is
        cheap whatever the size of the store. At most ``most`` queues."""
        ...


class StoreReport(Struct, frozen=True, kw_only=True):
    place: str
    """Where the store is, for people; never with a password."""
    schema: int
    newest_schema: int
    runs: int | None = None
    bytes_used: int | None = None
    problems: tuple[str, ...] = ()
    """Empty if nothing wrong was found."""


@runtime_checkable
class Upkeep(Protocol):
    """Check and migration of a store's schema."""

    async def check_store(self) -> StoreReport:
        """Look for damage and an outdated schema; changes nothing. May take a while."""
        ...

    async def migrate_store(self) -> StoreReport:
        """Bring the schema to this version's. ``StoreIncompatible`` if it is newer than that."""
        ...


@runtime_checkable
class ReadinessCheck(Protocol):
    async def check_ready(self) -> None:
        """Whether this version of Tenure can use the store now. ``StoreUnavailable``, or
        ``StoreIncompatible`` if the schema was migrated meanwhile. Reads no run, costs next to
        nothing."""
        ...


@runtime_checkable
class Retention(Protocol):
    """Pruning. Without it history only grows, or the integrator's own tools trim it."""

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        """Remove up to ``limit`` runs that ended more than ``older_than`` seconds ago, oldest
        first, each whole: record, journal, definition if no other run uses it, settled callbacks,
        output. Returns how many were removed.

        Ages are measured by the clock that stamped the ends, the store's own: a wrong clock on the
        caller's machine must not remove anything.

        Never removes a run that has not ended, nor one with a callback still waiting to be sent.
        Writers wait for it no longer than for one another, however much there is to remove; a run
        with very much output may take long. After an interruption the next call removes the rest.
        """
        ...


@runtime_checkable
class StoreClock(Protocol):
    """Without it the offset of a machine's clock from the store's cannot be shown."""

    async def store_time(self) -> datetime:
        """The store's clock now, UTC."""
        ...


@runtime_checkable
class Attended(Protocol):
    """A store that something else maintains, such as a gateway's. Without it every process that
    uses a store also sends its callbacks, marks runs whose owner is gone, and prunes old ones; with
    it a process does so only on request."""

    @property
    def attended_by(self) -> str:
        """What maintains it, for people."""
        ...


@runtime_checkable
class TakesTurns(Transport, Protocol):
    """A transport that runs a limited number of commands at once.

    Without it the time a command waits in the queue counts as its own, and may time it out.
    """

    async def run_in_turn(
        self, host: Endpoint, command: Command, output: Output, begins: Callable[[], None]
    ) -> Exit:
        """As ``run``. ``begins`` is called once, when the command leaves the queue; never if it
        does not get that far."""
        ...


@runtime_checkable
class TokenStore(Protocol):
    """Tokens of the gateway. Without it a gateway serves its own machine only, with ``--no-token``.

    Tokens are kept in the store of the runs: all gateways of a store know the same ones, and all
    refuse one that is revoked.
    """

    async def add_token(self, token: Token) -> Token:
        """Returns the token as stored, with ``created_at`` by the store's clock. An existing id
        keeps its token, which is returned."""
        ...

    async def add_first_token(self, token: Token) -> bool:
        """Whether this very token is kept now: only if there was none at all, not even one that is
        expired or revoked. Of several that are added at once under the same id one is kept."""
        ...

    async def list_tokens(self) -> list[Token]:
        """All tokens in the order they were added, expired and revoked ones included."""
        ...

    async def revoke_token(self, token_id: str) -> Token | None:
        """Revoke a token; a revoked one is left unchanged. ``None``: there is no such token."""
        ...

    async def lease_tokens(self, run_ids: Collection[str]) -> dict[str, LeaseToken]:
        """By which token each of these runs was last claimed, in one query however many they are;
        missing for those that never were with a ``token_id``. It is stored in the commit that
        claims. A claim with another token that would renew what its owner holds is ``LeaseHeld``.
        """
        ...

    async def token_secret(self) -> bytes:
        """At least 16 bytes, the same for all gateways of the store and for as long as it lives,
        and to be guessed by no reader of runs."""
        ...


class LogKey(Struct, frozen=True, kw_only=True):
    """One stream of one attempt."""

    step: int
    host: str
    stream: str
    """``stdout`` or ``stderr``."""
    item: int | None = None
    attempt: int = 1


class LogSlice(Struct, frozen=True, kw_only=True):
    offset: int
    data: bytes
    size: int
    """Bytes in the stream at that time; ``offset + len(data) == size`` means caught up."""


@runtime_checkable
class LogStore(Protocol):
    """Full output of tasks. Without it only the tails in the record remain."""

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        """Write ``data`` at ``offset``, the end of the stream; return the new end.

        ``RunNotFound``; ``LeaseLost`` if the writer's fence and owner are not the run's: no append
        begun after a claim succeeds. Sending the same bytes at the same offset again changes
        nothing. ``StoreRejected`` for an offset past the end (a gap) or for other bytes than the
        ones already there.
        """
        ...

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        """Raw bytes from ``offset``; empty for a stream without output. ``RunNotFound``."""
        ...


@runtime_checkable
class LogListing(Protocol):
    """Without it a reader must guess which attempts printed something."""

    async def list_logs(self, run_id: str) -> list[LogKey]:
        """Every stream with output, by step, host, item, attempt, stream. ``RunNotFound``."""
        ...


LogName = tuple[str, LogKey]
"""A run's id, and one of its streams."""


@runtime_checkable
class LogSizes(Protocol):
    """Sizes of many streams. Without it a follower of many tasks reads on in each."""

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        """Bytes of each stream, in one query. Zero for a stream without output; runs that do not
        exist are missing."""
        ...
