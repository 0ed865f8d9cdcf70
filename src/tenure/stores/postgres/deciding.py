"""What is to be written: the model's decision on a run, turned into rows of a batch."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.model.codec import decode
from tenure.model.decide import Circumstances, WholeSteps, decide
from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.leases import check_repeated, create
from tenure.model.progress import Decision, Steps, concerns_steps
from tenure.model.query import news
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import StepStatus
from tenure.model.update import LeaseRequest, NewRun, Receipt, Update, Write, receipt, run_id_of
from tenure.stores.lives import Life
from tenure.stores.postgres.batch import Batch
from tenure.stores.postgres.rows import Head, ToWriteRow, head_of, steps_of, to_write
from tenure.stores.postgres.session import Call, Session
from tenure.stores.postgres.watched import Row
from tenure.stores.recent import Known, Recent
from tenure.stores.step_rows import started

_created = msgspec.json.Decoder(list[tuple[int, int, datetime | None]])
_updated = msgspec.json.Decoder(list[int])

_OWNER = Circumstances(lease_live=True)
"""Of an owner's update on the newest version; more need not be known about it."""


class NotRemembered(Exception):
    """Only the stored run can tell."""


class _Born(Struct, frozen=True, gc=False):
    """A creation, if it is written."""

    run: RunSnapshot
    lease: LeaseRequest | None


class _Accepted(Struct, frozen=True, gc=False):
    """An update, if it is written."""

    known: Known[Head]
    after: RunSnapshot
    decision: Decision


class Decided:
    """Creations and updates that one trip writes, and what is to be said of each if it did."""

    def __init__(self, recent: Recent[Head]) -> None:
        self.creations = Batch()
        self.updates = Batch()
        self._recent = recent
        self._born: dict[int, _Born] = {}
        self._accepted: dict[int, _Accepted] = {}
        self._expected: dict[int, Receipt] = {}
        """Of the updates, once they are on their way."""
        self._news: dict[int, tuple[str, ...]] = {}
        self.announced = False
        """What was aboard has been told."""

    def but(self, written: Collection[int]) -> set[int]:
        """Those that were not written after all."""
        if len(written) == len(self._born) + len(self._accepted) + len(self._expected):
            return set()
        return {*self._born, *self._accepted, *self._expected} - {*written}

    def when_born(self, i: int, run: RunSnapshot, lease: LeaseRequest | None) -> None:
        self._born[i] = _Born(run, lease)

    def when_accepted(
        self, i: int, known: Known[Head], after: RunSnapshot, decision: Decision
    ) -> None:
        self._accepted[i] = _Accepted(known, after, decision)

    def tells(self, i: int, topics: Iterable[str]) -> None:
        """Somebody may be waiting for it."""
        told = tuple(topics)
        if told:
            self._news[i] = told

    def news_of(self, written: Container[int]) -> Iterable[str]:
        """What there is to announce once these are durable."""
        return chain.from_iterable(self._news[i] for i in self._news if i in written)

    def news_of_births(self) -> Iterable[str]:
        """What there will be to announce, if all that is written is runs that are born."""
        return () if self._accepted else self.news_of(self._born)

    def calls(self, aboard: Sequence[str] = ()) -> list[Call]:
        """The statements that write it; asked for once. ``aboard`` is announced with the creations,
        if nobody else is just announcing something that way: see ``announced``."""
        calls: list[Call] = []
        if self.creations:
            calls.append(self.creations.creation(aboard))
        if self.updates:
            calls.append(self.updates.update())
        self.creations = self.updates = Batch()  # nobody needs the rows any more
        return calls

    async def send(
        self, session: Session, aboard: Sequence[str] = (), *, commit: bool = False
    ) -> dict[int, Receipt]:
        """Receipts of those that were written; they are durable."""
        calls = self.calls(aboard)
        if len(calls) == 1 and not commit:
            ((name, *values),) = calls
            answers = [await session.all(name, *values)]
        elif calls or commit:
            answers = await session.together(*calls, *([("commit",)] if commit else []))
        else:
            answers = []
        return self.receipts(session, iter(answers))

    def expect(self) -> None:
        """Remember the updates as written, while they are on their way: that is work for which
        nobody then waits. Whoever decides on it too early is refused by the store. Who sends them
        must forget them if the trip fails; ``receipts`` forgets those that were refused."""
        for i, accepted in self._accepted.items():
            self._expected[i] = self._taken_in(accepted)
        self._accepted.clear()  # to let go of so much takes time, too

    def receipts(self, session: Session, answered: Iterator[list[Row]]) -> dict[int, Receipt]:
        """As the answers to ``calls`` tell, once what they wrote is durable."""
        receipts: dict[int, Receipt] = {}
        if self._born:
            ((at, text, *told),) = next(answered)
            session.heard(at)
            self.announced = any(told)
            for i, seq, end in decode(_created, text):
                receipts[i] = self._there(self._born[i], seq, end)
        self.expect()
        if self._expected:
            ((at, text),) = next(answered)
            session.heard(at)
            receipts |= self._written(decode(_updated, text))
        return receipts

    def _written(self, numbers: list[int]) -> dict[int, Receipt]:
        if len(numbers) == len(self._expected):
            return self._expected
        for i in self._expected.keys() - {*numbers}:
            self._recent.forget(self._expected[i].run_id)
        return {i: self._expected[i] for i in numbers}

    def _there(self, born: _Born, seq: int, lease_expires_at: datetime | None) -> Receipt:
        run, lease = born.run, born.lease
        if lease is not None:
            bare = replace(run, steps=(), vars={})
            head = Head(seq, bare, lease.claim_id, lease_expires_at, True)
            self._recent.put(run.run_id, Known(head, run.steps, not_remembered, Life.of(run)))
        return receipt(run, 1, lease_expires_at)

    def _taken_in(self, accepted: _Accepted) -> Receipt:
        known, after, decision = accepted.known, accepted.after, accepted.decision
        head = known.head
        if after.ended:
            self._recent.end(known, after, decision.steps)
        else:
            moved = Head(head.seq, after, head.claim_id, head.lease_expires_at, head.lease_live)
            known.advance(moved, decision.steps)
        until = head.lease_expires_at if after.owner_id is not None else None
        return receipt(after, decision.version, until)


async def send_in_turn(
    session: Session, decisions: Iterable[Decided]
) -> list[tuple[Decided, dict[int, Receipt]]]:
    """In one transaction. The server writes one while the next is being decided."""
    sent: list[Decided] = []

    def calls() -> Iterator[Call]:
        for decided in decisions:
            sent.append(decided)
            yield from decided.calls()
            decided.expect()

    answers = iter(await session.in_turn(calls()))
    return [(decided, decided.receipts(session, answers)) for decided in sent]


class Deciding:
    def __init__(self) -> None:
        self.recent: Recent[Head] = Recent()

    def forget(self, run_ids: Iterable[str]) -> None:
        """Nobody knows what became of them."""
        for run_id in run_ids:
            self.recent.forget(run_id)

    def remember(self, head: Head, steps: tuple[StepState, ...]) -> Known[Head]:
        known = Known(head, steps, not_remembered)
        self.recent.put(head.run.run_id, known)
        return known

    # On what this process remembers

    def from_memory(self, decided: Decided, i: int, write: Write, at: datetime) -> None:
        """``NotRemembered``; a refusal of an update may rest on what is no longer so."""
        if isinstance(write, NewRun):
            self._create(decided, i, write, at)
            return
        known = self.recent.get(write.run_id)
        if known is None or write.lease is None or write.if_unowned is not None:
            raise NotRemembered
        if self._update(decided, i, write, known, known, _OWNER, at) is not None:
            raise NotRemembered

    def _create(self, decided: Decided, i: int, new: NewRun, at: datetime) -> None:
        run = create(new, at)
        batch = decided.creations
        batch.create(i, new, run, at)
        for step in run.steps:
            if step.status is not StepStatus.PENDING:
                batch.put_step(i, started(step))
        batch.journal(i, run, new.update_id, new.events, new.deliveries, at)
        decided.tells(i, news(None, run, at))
        decided.when_born(i, run, new.lease)

    # On the stored run

    async def lock(
        self, session: Session, writes: Sequence[Write]
    ) -> tuple[dict[str, ToWriteRow], set[str]]:
        """Begin a transaction, lock what nobody else has locked, and only then read: what is read
        of a locked run is its newest state, down to each host. All that are there; and of those
        the locked ones."""
        ids = [run_id_of(write) for write in writes]
        bases = [write.base_version if isinstance(write, Update) else None for write in writes]
        whole = [isinstance(write, Update) and _concerns_steps(write) for write in writes]
        *_, locked, texts = await session.together(
            ("begin",),
            ("carefully",),
            ("lock_runs", ids),
            ("runs_to_write", ids, bases, whole),
        )
        seqs = {seq for (seq,) in locked}
        found = {row.head.run_id: row for row in (to_write(text) for (text,) in texts)}
        return found, {run_id for run_id, row in found.items() if row.head.seq in seqs}

    def from_the_store(
        self, decided: Decided, i: int, write: Write, found: dict[str, ToWriteRow]
    ) -> Receipt | None:
        """The answer, if there is nothing to write. Judged by the server's clock, as it was when
        nobody else could write the run any more."""
        run_id = run_id_of(write)
        self.recent.forget(run_id)
        row = found.get(run_id)
        if isinstance(write, NewRun):
            return _created_before(write, row)
        if row is None:
            raise RunNotFound(run_id)
        head = head_of(row.head, row.callbacks)
        steps = steps_of(head.run, row)
        known = Known(head, steps, not_remembered)
        if write.lease is not None and not head.run.ended:
            self.recent.put(run_id, known)
        base, run = write.base_version, head.run
        stale = base is not None and base < run.version
        circumstances = Circumstances(
            lease_live=head.lease_live,
            applied_id=row.applied_id if stale else None,
            lease_expires_at=head.lease_expires_at,
        )
        return self._update(decided, i, write, known, WholeSteps(steps), circumstances, row.at)

    def _update(
        self,
        decided: Decided,
        i: int,
        update: Update,
        known: Known[Head],
        steps: Steps,
        circumstances: Circumstances,
        at: datetime,
    ) -> Receipt | None:
        head = known.head
        run = head.run
        decision = decide(run, steps, update, at=at, circumstances=circumstances)
        effect, fields = decision.effect, decision.fields
        if effect is None:
            return receipt(run, decision.version, head.lease_expires_at)
        after = decision.own_fields(run)
        batch = decided.updates
        if not fields or (len(fields) == 1 and "counts" in fields):  # of steps and hosts alone
            batch.progress(i, head, after)
        else:
            batch.change(i, head, after, at)
            decided.tells(i, news(run, after, at))
        for delta in decision.steps.values():
            batch.put_step(i, delta, steps)
        batch.journal(i, after, update.update_id, effect.events, effect.deliveries, at)
        decided.when_accepted(i, known, after, decision)
        return None


def _concerns_steps(update: Update) -> bool:
    return (
        update.lease is not None
        or concerns_steps(update.effect)
        or (update.if_unowned is not None and concerns_steps(update.if_unowned))
    )


def not_remembered(known: Known[Head], step: int, name: str) -> HostState | None:
    raise NotRemembered


def _created_before(new: NewRun, row: ToWriteRow | None) -> Receipt:
    if row is None:
        raise StoreUnavailable(
            f"run {new.snapshot.run_id} was removed at this very moment; send it again"
        )
    head = head_of(row.head)
    check_repeated(head.run, row.first_id, new)
    return receipt(head.run, 1, head.lease_expires_at)
