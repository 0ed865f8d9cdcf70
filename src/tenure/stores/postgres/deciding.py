"""What is to be written: the model's decision on a run, turned into rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from itertools import chain

import msgspec
from msgspec.structs import replace

from tenure.model.apply import apply
from tenure.model.codec import decode
from tenure.model.errors import RunNotFound, StoreUnavailable
from tenure.model.judge import Circumstances, choose_effect
from tenure.model.leasing import check_repeated, create
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.status import ENDED_STEP, TERMINAL_RUN, StepStatus
from tenure.model.update import Effect, NewRun, Receipt, Update, Write, receipt, run_id_of
from tenure.model.wakeups import news
from tenure.stores.postgres.batch import Batch
from tenure.stores.postgres.rows import Head, ToWriteRow, head_of, steps_of, to_write
from tenure.stores.postgres.session import Call, Session
from tenure.stores.recent import EndedHost, Known, Recent
from tenure.stores.step_rows import changed_step, changed_steps

_created = msgspec.json.Decoder(list[tuple[int, int, datetime | None]])
_updated = msgspec.json.Decoder(list[int])

_OWNER = Circumstances(lease_live=True)
"""Of an owner's update on the newest version; more need not be known about it."""

Born = Callable[[int, datetime | None], Receipt]
"""What to do once a run is there, with its number and the end of its lease."""
Accepted = Callable[[], Receipt]


class NotRemembered(Exception):
    """Only the stored run can tell."""


class Decided:
    """Creations and updates that one trip writes, and what is to be said of each if it did."""

    def __init__(self) -> None:
        self.creations = Batch()
        self.updates = Batch()
        self._born: dict[int, Born] = {}
        self._accepted: dict[int, Accepted] = {}
        self._news: dict[int, tuple[str, ...]] = {}

    def __contains__(self, i: int) -> bool:
        return i in self._born or i in self._accepted

    def when_born(self, i: int, then: Born) -> None:
        self._born[i] = then

    def when_accepted(self, i: int, then: Accepted) -> None:
        self._accepted[i] = then

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

    async def send(
        self, session: Session, aboard: Sequence[str] = (), *, commit: bool = False
    ) -> dict[int, Receipt]:
        """Receipts of those that were written; they are durable. ``aboard`` is announced with the
        creations."""
        calls: list[Call] = []
        if self.creations:
            calls.append(self.creations.creation(aboard))
        if self.updates:
            calls.append(self.updates.update())
        if commit:
            calls.append(("commit",))
        if len(calls) == 1:
            ((name, *values),) = calls
            answers = [await session.all(name, *values)]
        else:
            answers = await session.together(*calls) if calls else []
        receipts: dict[int, Receipt] = {}
        for (name, *_), answer in zip(calls, answers, strict=True):
            if name == "commit":
                continue
            ((at, text, *_),) = answer
            session.heard(at)
            if name.startswith("create"):
                receipts |= {i: self._born[i](seq, end) for i, seq, end in decode(_created, text)}
            else:
                receipts |= {i: self._accepted[i]() for i in decode(_updated, text)}
        return receipts


class Deciding:
    def __init__(self) -> None:
        self.recent: Recent[Head] = Recent()

    def forget(self, run_ids: Iterable[str]) -> None:
        """Nobody knows what became of them."""
        for run_id in run_ids:
            self.recent.forget(run_id)

    def remember(self, head: Head, steps: tuple[StepState, ...]) -> Known[Head]:
        known = Known(head, steps)
        self.recent.put(head.run.run_id, known)
        return known

    # On what this process remembers

    def from_memory(self, decided: Decided, i: int, write: Write, at: datetime) -> None:
        """``NotRemembered``; a refusal of an update may rest on what is no longer so."""
        if isinstance(write, NewRun):
            self._create(decided, i, write, at)
            return
        known = self.recent.get(write.run_id)
        if known is None or not _is_its_next(known.head.run, write):
            raise NotRemembered
        if self._update(decided, i, write, known, _unknown_host, _OWNER, at) is not None:
            raise NotRemembered

    def _create(self, decided: Decided, i: int, new: NewRun, at: datetime) -> None:
        run = create(new, at)
        batch = decided.creations
        batch.create(i, new, run, at)
        for step in run.steps:
            if step.status is not StepStatus.PENDING:
                batch.put_step(i, changed_step(step, None))
        batch.journal(i, run, new.update_id, new.events, new.deliveries, at)
        decided.tells(i, news(None, run, at))

        def born(seq: int, lease_expires_at: datetime | None) -> Receipt:
            if new.lease is not None:
                bare = replace(run, steps=(), vars={})
                head = Head(seq, bare, new.lease.claim_id, lease_expires_at, True)
                self.remember(head, run.steps)
            return receipt(run, 1, lease_expires_at)

        decided.when_born(i, born)

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
        self, decided: Decided, i: int, write: Write, found: dict[str, ToWriteRow], at: datetime
    ) -> Receipt | None:
        """The answer, if there is nothing to write."""
        run_id = run_id_of(write)
        self.recent.forget(run_id)
        row = found.get(run_id)
        if isinstance(write, NewRun):
            return _created_before(write, row)
        if row is None:
            raise RunNotFound(run_id)
        head = head_of(row.head, row.callbacks)
        steps = steps_of(head.run, row.plan, row.steps, row.tasks)
        known = Known(head, steps)
        if write.lease is not None and not head.run.ended:
            self.recent.put(run_id, known)
        base, run = write.base_version, head.run
        stale = base is not None and base < run.version
        circumstances = Circumstances(
            lease_live=head.lease_live,
            applied_id=row.applied_id if stale else None,
            lease_expires_at=head.lease_expires_at,
        )
        return self._update(decided, i, write, known, _host_in(steps), circumstances, at)

    def _update(
        self,
        decided: Decided,
        i: int,
        update: Update,
        known: Known[Head],
        ended_host: EndedHost,
        circumstances: Circumstances,
        at: datetime,
    ) -> Receipt | None:
        head = known.head
        effect = choose_effect(head.run, update, circumstances.lease_live)
        before = _with_steps(known, effect, ended_host)
        after, version, written = apply(before, update, at=at, circumstances=circumstances)
        if written is None:
            return receipt(head.run, version, head.lease_expires_at)
        batch = decided.updates
        batch.change(i, head, after, at)
        bare: dict[int, StepState] = {}
        for changed in changed_steps(before, after, effect):
            batch.put_step(i, changed)
            bare[changed.bare.index] = changed.bare
        batch.journal(i, after, update.update_id, effect.events, effect.deliveries, at)
        decided.tells(i, news(head.run, after, at))

        def accepted() -> Receipt:
            if after.ended:
                self.recent.forget(after.run_id)
            else:
                known.advance(_moved(head, after), after, effect, bare)
            until = head.lease_expires_at if after.owner_id is not None else None
            return receipt(after, version, until)

        decided.when_accepted(i, accepted)
        return None


def _is_its_next(run: RunSnapshot, update: Update) -> bool:
    lease = update.lease
    return (
        lease is not None
        and update.if_unowned is None
        and update.base_version == run.version
        and lease.fence == run.fence
        and lease.owner_id == run.owner_id
    )


def _concerns_steps(update: Update) -> bool:
    effects = (update.effect, update.if_unowned or update.effect)
    return update.lease is not None or any(
        effect.changes.steps or effect.changes.run.status in TERMINAL_RUN for effect in effects
    )


def _with_steps(known: Known[Head], effect: Effect, ended_host: EndedHost) -> RunSnapshot:
    """What this leaves out is pending, or has ended."""
    run, changes = known.head.run, effect.changes
    ends = changes.run.status in TERMINAL_RUN and not run.ended
    if not ends and not changes.steps:
        return run
    return replace(run, steps=known.concerned(changes.steps, ends, ended_host))


def _unknown_host(step: int, name: str) -> HostState | None:
    raise NotRemembered


def _host_in(steps: tuple[StepState, ...]) -> EndedHost:
    def find(index: int, name: str) -> HostState | None:
        for step in steps:
            if step.index == index:
                return step.hosts.get(name) or (HostState() if step.status in ENDED_STEP else None)
        return None

    return find


def _moved(head: Head, after: RunSnapshot) -> Head:
    return head._replace(run=replace(after, steps=()))


def _created_before(new: NewRun, row: ToWriteRow | None) -> Receipt:
    if row is None:
        raise StoreUnavailable(
            f"run {new.snapshot.run_id} was removed at this very moment; send it again"
        )
    head = head_of(row.head)
    check_repeated(head.run, row.first_id, new)
    return receipt(head.run, 1, head.lease_expires_at)
