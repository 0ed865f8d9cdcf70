"""Creations and updates: one trip and one commit for many, in the usual case.

The model decides, here as everywhere. An owner's next update is decided on what this process
remembers of the run; the statement that writes it checks that version, fence and owner are still
those, which proves that the rest is too, and writes nothing of a run where they are not. Whatever
the memory cannot answer for (an operator's change, a repetition, a refusal) is decided on the
stored run, locked, read and written in one transaction of two trips. A run that somebody else is
writing at the moment is never waited for: it is tried again apart from the others.

Of a large batch of updates the server writes the first part while the next is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import inf
from time import monotonic

from psycopg.errors import InsufficientPrivilege, ProgramLimitExceeded

from tenure.model.errors import RunNotFound, StoreRejected, StoreUnavailable, TenureError
from tenure.model.leases import already_retried
from tenure.model.update import NewRun, Receipt, Write, run_id_of
from tenure.stores.incoming import checked, told_apart
from tenure.stores.postgres.announcing import Announcing
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.deciding import Decided, Deciding, NotRemembered, send_in_turn
from tenure.stores.postgres.failures import DATA_ERRORS, is_full_queue, is_second_retry
from tenure.stores.postgres.names import can_exist
from tenure.stores.postgres.patience import pause, pauses_for
from tenure.stores.postgres.session import Session

Outcome = Receipt | TenureError
_Numbered = tuple[int, Write]

_FIRST_PART = 16
"""Updates: what is decided of a batch before the server has something to do."""
_LARGEST_PART = 40
"""For the last one everybody waits."""
_UNSEALED_FOR = 60.0
"""Seconds until a role that was not allowed to seal announcements tries again."""


class Writing:
    def __init__(
        self, connections: Connections, deciding: Deciding, announcing: Announcing
    ) -> None:
        self._connections = connections
        self._deciding = deciding
        self._announcing = announcing
        self._unsealed_until = -inf

    async def one(self, write: Write) -> Receipt:
        (outcome,) = await self.many([write])
        if isinstance(outcome, TenureError):
            raise outcome
        return outcome

    async def many(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        work: list[_Numbered] = []
        for i, write in enumerate(told_apart(writes)):
            if isinstance(write, TenureError):
                outcomes[i] = write
            else:
                work.append((i, write))
        await self._in_parts(work, outcomes)
        return [outcomes[i] for i in range(len(writes))]

    async def _in_parts(self, work: list[_Numbered], outcomes: dict[int, Outcome]) -> None:
        """If the server cannot hold some value, nobody knows whose: halves, until it is alone."""
        if outcomes:
            work = [each for each in work if each[0] not in outcomes]
        if not work:
            return
        try:
            async with self._connections.session(Purpose.WRITING) as session:
                wrong = await self._attempt_or_data_error(session, work, outcomes)
        except BaseException:
            self._forget(work)
            raise
        if wrong is None:
            return
        if len(work) == 1:
            ((i, write),) = work
            outcomes[i] = await self._refusal(write, wrong)
            return
        half = len(work) // 2
        await self._in_parts(work[:half], outcomes)
        await self._in_parts(work[half:], outcomes)

    async def _refusal(self, write: Write, wrong: Exception) -> TenureError:
        if isinstance(write, NewRun) and write.snapshot.retry_of and is_second_retry(wrong):
            retry_of = write.snapshot.retry_of
            async with self._connections.session(Purpose.WRITING) as session:
                active = await session.first("active_retry", retry_of)
            if active is not None:
                return already_retried(retry_of, *active)
            return StoreUnavailable(f"another retry of {retry_of} has just ended; send it again")
        reason = str(wrong).splitlines()[0]
        return StoreRejected(run_id_of(write), f"cannot be stored: {reason}")

    async def _attempt_or_data_error(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> Exception | None:
        try:
            await self._attempt_without_hints_if_need_be(session, work, outcomes)
        except DATA_ERRORS as error:
            if is_full_queue(error):
                raise  # somebody else tells with what we write: a trigger
            self._forget(work)
            return error
        return None

    async def _attempt_without_hints_if_need_be(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> None:
        """If the server cannot take hints now, nothing that they came with was written."""
        try:
            await self._attempt(session, work, outcomes)
        except ProgramLimitExceeded as error:
            if not is_full_queue(error):
                raise
            self._announcing.none_aboard()
            self._forget(work)
            await self._attempt(session, work, outcomes)

    def _forget(self, work: list[_Numbered]) -> None:
        self._deciding.forget(run_id_of(write) for _, write in work)

    async def _attempt(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> None:
        left = as_they_are(await self._sealed_or_not(session, work, outcomes), outcomes)
        for seconds in pauses_for(len(work)):
            if not left:
                return
            await pause(seconds)
            left = await self._from_the_store(session, left, outcomes)
        for i, write in left:
            outcomes[i] = StoreUnavailable(
                f"run {run_id_of(write)} is locked in {self._connections.address.place} by "
                "somebody else's transaction; nothing was written, send it again"
            )

    async def _sealed_or_not(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> list[_Numbered]:
        """As ``_from_memory``. A right that only makes runs begin sooner is not asked for first,
        and no run is refused for want of it."""
        try:
            return await self._from_memory(session, work, outcomes)
        except InsufficientPrivilege:
            creates = any(isinstance(write, NewRun) for _, write in work)
            if not creates or (await session.one("may_use_seal"))[0]:
                raise
            self._unsealed_until = monotonic() + _UNSEALED_FOR
            return await self._from_memory(session, work, outcomes)

    async def _from_memory(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> list[_Numbered]:
        """What must be looked at again."""
        at = await session.now()
        left: list[_Numbered] = []
        parts = parts_of(work)
        decisions = (self._decide(part, at, left, outcomes) for part in parts)
        if len(parts) > 1:
            told = await send_in_turn(session, decisions)
        else:
            (decided,) = decisions
            aboard = self._announcing.aboard(decided.news_of_births())
            told = [(decided, await decided.send(session, aboard))]
        refused: set[int] = set()
        for decided, written in told:
            if not decided.announced:
                self._announcing.announce(decided.news_of(written))
            outcomes |= written
            refused |= decided.but(written)
        return left + [each for each in work if each[0] in refused] if refused else left

    def _decide(
        self,
        work: list[_Numbered],
        at: datetime,
        left: list[_Numbered],
        outcomes: dict[int, Outcome],
    ) -> Decided:
        """What only the stored run can tell is ``left``."""
        decided = Decided(self._deciding.recent)
        decided.creations.may_seal = monotonic() >= self._unsealed_until
        for i, write in as_they_are(work, outcomes):
            try:
                self._deciding.from_memory(decided, i, write, at)
            except NotRemembered:
                run_id = run_id_of(write)
                if can_exist(run_id):
                    left.append((i, write))
                else:
                    outcomes[i] = RunNotFound(run_id)
            except TenureError as refusal:
                if isinstance(write, NewRun):
                    outcomes[i] = refusal
                else:
                    left.append((i, write))
        return decided

    async def _from_the_store(
        self, session: Session, work: list[_Numbered], outcomes: dict[int, Outcome]
    ) -> list[_Numbered]:
        """Those that are locked by somebody else."""
        async with session.undone_on_error():
            found, locked = await self._deciding.lock(session, [write for _, write in work])
            decided, left = Decided(self._deciding.recent), []
            for i, write in work:
                run_id = run_id_of(write)
                if run_id in found and run_id not in locked:
                    left.append((i, write))
                    continue
                try:
                    answer = self._deciding.from_the_store(decided, i, write, found)
                except TenureError as refusal:
                    outcomes[i] = refusal
                else:
                    if answer is not None:
                        outcomes[i] = answer
            written = await decided.send(session, commit=True)
            self._announcing.announce(decided.news_of(written))
            outcomes |= written
        refused = decided.but(written)
        return left + [each for each in work if each[0] in refused] if refused else left


def as_they_are(work: list[_Numbered], outcomes: dict[int, Outcome]) -> list[_Numbered]:
    """Copies of those that can be stored: callers may do what they like with theirs."""
    kept: list[_Numbered] = []
    for (i, _), write in zip(work, checked([write for _, write in work]), strict=True):
        if isinstance(write, TenureError):
            outcomes[i] = write
        else:
            kept.append((i, write))
    return kept


def parts_of(work: list[_Numbered]) -> list[list[_Numbered]]:
    """Each half as large again as the one before: to decide an update takes two thirds as long as
    to write it, and each part costs the server a statement. A batch that creates runs stays whole:
    two who create the same runs must do so in the same order, or they wait for each other."""
    if any(isinstance(write, NewRun) for _, write in work):
        return [work]
    parts: list[list[_Numbered]] = []
    size = _FIRST_PART
    while len(work) > 2 * size:
        parts.append(work[:size])
        work, size = work[size:], min(size * 3 // 2, _LARGEST_PART)
    return [*parts, work]
