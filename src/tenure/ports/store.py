"""The one protocol every store must have."""

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
    durable when the call returns if ``durable`` says so. A reader sees one version, never a mix.

    *Judged by the model.* What a write does is ``model.leasing.create`` and
    ``model.decide.decide``: a store supplies atomicity, its clock, and memory; it decides nothing.

    *Repeatable.* A caller that got ``StoreUnavailable``, or was cancelled while waiting, does not
    know whether its write happened; it sends the same ``update_id`` again and gets the first
    answer. A cancelled call may therefore have been applied, but never half.

    *Independent.* What is returned shares no memory with the store.

    *Errors* are those of ``model.errors``; a driver's exception never leaks.
    """

    durable: bool
    """Whether runs survive this process."""

    async def create_run(self, new: NewRun) -> Receipt:
        """Store a new run at version 1.

        The store stamps all times, sets ``fence`` to 1 and the owner if ``new.lease`` is given
        (0 and no owner otherwise), and keeps ``new.definition``.

        ``InvalidRunId`` or ``StoreRejected`` for values that can never be stored; ``RunExists``
        for a used id, with nothing changed; the first answer if that run was created by this very
        ``update_id``, but ``LeaseLost`` if it was born with a lease that has been lost since.
        """
        ...

    async def update_run(self, update: Update) -> Receipt:
        """Apply a delta. ``RunNotFound``, then the refusals of ``model.judge`` in its order.

        An accepted update raises ``version`` by one and appends one journal row holding its
        ``update_id`` and events. A refused one leaves no trace.
        """
        ...

    async def get_run(self, run_id: str) -> RunSnapshot:
        """The newest snapshot. ``RunNotFound`` rather than an invented one.

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


# Many writes in one commit.


@runtime_checkable
class BatchUpdates(Protocol):
    """Without it, the combiner sends updates one by one."""

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
    """Without it, one batch waits for the other."""

    @property
    def batches_at_once(self) -> int:
        """So many calls of ``update_runs`` can be under way without one waiting for another."""
        ...


# Beginning a run in the very write that claims it.


@runtime_checkable
class Beginnings(Protocol):
    """Without it a run is claimed, and begins with its owner's next update: one commit later.

    For a run that waits alone. Who asks for many at once claims them: of several workers that see
    the same runs wait only one would begin each.
    """

    async def find_waiting(self, queues: Sequence[str], *, limit: int) -> list[WaitingRun]:
        """The first runs that a claim of these queues would get now and that nobody owns, begun or
        not, in the order of claims. They are not claimed, and nothing is locked."""
        ...

    async def begin_run(self, beginning: Beginning) -> Receipt:
        """Claim and first update in one commit and one version, as ``model.beginning`` decides.

        ``RunNotFound``; ``LeaseHeld``, ``VersionConflict`` or ``NotRunnable`` if the run is not as
        it was seen: then nothing was written. The same ``update_id`` again gets the first answer,
        or ``LeaseLost`` if the run is somebody else's by now.
        """
        ...


# What a run executes.


@runtime_checkable
class Definitions(Protocol):
    """Without it no run can be taken over or retried: nobody else knows its workflow."""

    async def get_definition(self, run_id: str) -> str | None:
        """The exact text given at creation, ``None`` if none was. ``RunNotFound``."""
        ...


# A run's history.


@runtime_checkable
class EventLog(Protocol):
    """Without it there is no history to stream, only the newest snapshot."""

    async def read_events(
        self, run_id: str, after: Position = Position(), *, limit: int = 1000
    ) -> list[RecordedEvent]:
        """Events after ``after``, oldest first, in order of (version, seq). ``RunNotFound``.

        A version that is readable in ``get_run`` has all its events here.
        """
        ...


@runtime_checkable
class RunVersions(Protocol):
    """Without it a gateway asks for each run that is watched."""

    async def versions_of(self, run_ids: Collection[str]) -> dict[str, int]:
        """The versions of those that exist, in one query however many they are. ``EventLog`` has
        all events of each version by then.
        """
        ...


# The histories of all runs, as one.


@runtime_checkable
class ChangeFeed(Protocol):
    """Without it whoever follows many runs asks for each."""

    async def read_changes(self, after: str | None = None, *, limit: int = 1000) -> FeedPage:
        """Events of all runs behind a cursor, or from the beginning; of ``limit`` versions at most.

        *Nothing is lost.* What can be read only later, because its commit was slower than others,
        comes behind every cursor handed out until then. Each event comes once along the cursors,
        each version whole, and those of one run in the order of their versions. Runs may be mixed
        in any way. What a run was before it was pruned may be missing.

        A feed may be late, as long as a write somewhere in the database takes. ``InvalidCursor``.
        """
        ...

    async def newest_change(self) -> str:
        """A cursor behind which comes whatever happens from now on, perhaps after a little of what
        happened before."""
        ...


# How much there is, and how much of it is to be done, in numbers.


class QueueLength(Struct, frozen=True, kw_only=True):
    """Runs of one queue that a worker could claim, had none ever been taken away from its owner."""

    queue: str
    runs: int
    oldest_seconds: float
    """For how long the one that became ready first has waited."""


class Census(Struct, frozen=True, kw_only=True):
    runs: dict[RunStatus, int]
    """By every status there is."""
    callbacks_waiting: int
    callbacks_dead: int
    queues: tuple[QueueLength, ...]
    """By name; a queue in which nothing waits may be missing."""


@runtime_checkable
class CensusTaking(Protocol):
    """Without it whoever watches over a store has to list what he wants to count."""

    async def take_census(self, *, most: int = 10_000) -> Census:
        """Each number as it is, or ``most`` if it is larger: so that counting costs little however
        much there is, and can be done every few seconds. Of ``most`` queues at the most."""
        ...


# Looking after a store.


class StoreReport(Struct, frozen=True, kw_only=True):
    place: str
    """Where it is, for people; never with a password."""
    schema: int
    newest_schema: int
    runs: int | None = None
    bytes_used: int | None = None
    problems: tuple[str, ...] = ()
    """Empty: nothing wrong was found."""


@runtime_checkable
class Upkeep(Protocol):
    async def check_store(self) -> StoreReport:
        """Look for damage and an outdated schema; changes nothing. May take a while."""
        ...

    async def migrate_store(self) -> StoreReport:
        """Bring the schema to this version's. ``StoreIncompatible`` if it is newer than that."""
        ...


@runtime_checkable
class ReadinessCheck(Protocol):
    async def check_ready(self) -> None:
        """Whether this version of Tenure can use the store as it stands now: ``StoreUnavailable``,
        or ``StoreIncompatible`` if somebody has migrated it meanwhile. Reads no run, costs next to
        nothing."""
        ...


# Forgetting old runs.


@runtime_checkable
class Retention(Protocol):
    """Without it history only grows, or the integrator's own tools trim it."""

    async def prune_runs(self, older_than: float, *, limit: int = 100) -> int:
        """Remove up to ``limit`` runs that ended more than so many seconds ago, oldest first, each
        whole: record, journal, definition if nobody else uses it, settled callbacks, output. How
        many were removed.

        How long ago, the clock that stamped their ends says: the store's own, when it looks. What
        time the caller believes it is must not matter, or a wrong clock would remove everything.

        Never a run that has not ended, nor one with a callback still waiting to be sent. Writers
        wait for it no longer than for one another, however much there is to remove: the call may
        take its time over a run with very much output. Stopped meanwhile, it leaves the rest to the
        next.
        """
        ...


# What time it is for a store.


@runtime_checkable
class StoreClock(Protocol):
    """Without it nobody can tell how far a machine's clock is from the one that stamps records."""

    async def store_time(self) -> datetime:
        """By that clock, at the moment of the question; UTC."""
        ...


# Stores that somebody else looks after.


@runtime_checkable
class Attended(Protocol):
    """Without it whoever uses a store also sends its callbacks, marks runs whose owner is gone, and
    forgets old ones. With it nobody does any of that unless asked: a gateway does, or whatever else
    stands before the store."""

    @property
    def attended_by(self) -> str:
        """Who does, for people."""
        ...


# Waiting for a turn, told apart from what is waited for.


@runtime_checkable
class TakesTurns(Transport, Protocol):
    """A transport that bears only so many commands at once.

    Without it the time a command waits for others counts as its own, and may time it out.
    """

    async def run_in_turn(
        self, host: Endpoint, command: Command, output: Output, begins: Callable[[], None]
    ) -> Exit:
        """As ``run``. ``begins`` is called once, when the command waits for no other any more;
        never if it does not get that far."""
        ...


# Who may come through the gateway.


@runtime_checkable
class TokenStore(Protocol):
    """Without it there are no tokens, and a gateway serves its own machine only.

    Kept where runs are kept: all gateways of a store know the same tokens, and one that is revoked
    is refused by all of them.
    """

    async def add_token(self, token: Token) -> Token:
        """As it is kept, with ``created_at`` by the store's clock. An id that is there already
        keeps the token it has, and that one is returned."""
        ...

    async def list_tokens(self) -> list[Token]:
        """All, also those that are expired or revoked, in the order in which they were added."""
        ...

    async def revoke_token(self, token_id: str) -> Token | None:
        """Whoever lists tokens from now on finds it revoked; one that was stays as it is.
        ``None``: there is no such token."""
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


# Full output of tasks.


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
    """Bytes there were when this was read; ``offset + len(data) == size`` means caught up."""


@runtime_checkable
class LogStore(Protocol):
    """Without it only the tails in the record remain."""

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        """Write ``data`` at ``offset``, which is where the stream ended; return where it ends now.

        ``RunNotFound``; ``LeaseLost`` if the writer's fence and owner are not the run's: none
        begun after a claim succeeds. Sending the same bytes at the same offset again changes
        nothing. ``StoreRejected`` for an offset past the end (a gap) or for other bytes than the
        ones already there.
        """
        ...

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        """Raw bytes from ``offset``; empty for a stream nobody wrote. ``RunNotFound``."""
        ...


# Which output there is.


@runtime_checkable
class LogListing(Protocol):
    """Without it a reader must guess which attempts printed something."""

    async def list_logs(self, run_id: str) -> list[LogKey]:
        """Every stream somebody wrote, by step, host, item, attempt, stream. ``RunNotFound``."""
        ...


# How much output there is, of many tasks.


LogName = tuple[str, LogKey]
"""A run's id, and one of its streams."""


@runtime_checkable
class LogSizes(Protocol):
    """Without it whoever follows the output of many tasks reads on in each."""

    async def sizes_of(self, names: Collection[LogName]) -> dict[LogName, int]:
        """Bytes of each stream, in one question however many they are. Zero if nobody wrote it;
        missing if there is no such run."""
        ...
