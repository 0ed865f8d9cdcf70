"""A store whose use is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from tenure.gateway.metrics.meters import Meters
from tenure.model.beginning import Beginning
from tenure.model.errors import LeaseLost, StoreUnavailable, TenureError
from tenure.model.leasing import ClaimedRun, ClaimRequest, Lease, Renewal
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.status import TERMINAL_RUN
from tenure.model.update import LeaseRequest, NewRun, Receipt, Update, Write

S = TypeVar("S")

_COUNTED = {
    name: f"_{name}"
    for name in (
        "create_run",
        "update_run",
        "update_runs",
        "claim_run",
        "claim_runs",
        "begin_run",
        "renew_leases",
        "settle_delivery",
        "settle_deliveries",
        "settle_and_claim",
    )
}


def measured(store: S, meters: Meters, clock: Callable[[], float]) -> S:
    """Does what ``store`` does, and has the protocols it has. ``clock`` counts seconds."""
    kind = type(type(store).__name__, (MeasuredStore,), {})  # messages name a store by its class
    return cast(S, kind(store, meters, clock))


class MeasuredStore:
    """Everything of the store becomes an attribute of this object, so that ``isinstance`` finds the
    very protocols; some of it is then put behind a count."""

    def __init__(self, store: Any, meters: Meters, clock: Callable[[], float]) -> None:
        self._store = store
        self._meters = meters
        self._clock = clock
        for name in dir(store):
            if not name.startswith("_"):
                own = _COUNTED.get(name)
                setattr(self, name, getattr(self, own) if own else getattr(store, name))

    async def _create_run(self, new: NewRun) -> Receipt:
        return await self._write(new, self._store.create_run)

    async def _update_run(self, update: Update) -> Receipt:
        return await self._write(update, self._store.update_run)

    async def _write(self, write: Write | Beginning, send: Callable[[Any], Any]) -> Receipt:
        began = self._clock()
        try:
            receipt: Receipt = await send(write)
        except TenureError as error:
            self._count([write], [error], began)
            raise
        self._count([write], [receipt], began)
        return receipt

    async def _update_runs(self, writes: Sequence[Write]) -> list[Receipt | TenureError]:
        began = self._clock()
        try:
            outcomes: list[Receipt | TenureError] = await self._store.update_runs(writes)
        except TenureError as error:
            self._count(writes, [error] * len(writes), began)
            raise
        self._count(writes, outcomes, began)
        return outcomes

    def _count(
        self,
        writes: Sequence[Write | Beginning],
        outcomes: Sequence[Receipt | TenureError],
        began: float,
    ) -> None:
        meters = self._meters
        meters.update_seconds.observe(self._clock() - began)
        meters.update_batch.observe(len(writes))
        for write, outcome in zip(writes, outcomes, strict=False):
            meters.updates.labels(_outcome(outcome)).inc()
            if isinstance(outcome, LeaseLost):
                meters.leases_lost.inc()
            elif isinstance(outcome, Receipt):
                self._count_life(write, outcome)

    def _count_life(self, write: Write | Beginning, receipt: Receipt) -> None:
        if isinstance(write, NewRun):
            self._meters.runs_created.inc()
        elif (
            isinstance(write, Update) and receipt.status in TERMINAL_RUN and _may_end_its_run(write)
        ):
            self._meters.runs_ended.labels(receipt.status).inc()

    async def _claim_run(
        self, run_id: str, request: LeaseRequest, *purpose: Any, **named: Any
    ) -> ClaimedRun:
        claimed: ClaimedRun = await self._store.claim_run(run_id, request, *purpose, **named)
        self._count_claims([claimed])
        return claimed

    async def _claim_runs(self, request: ClaimRequest) -> list[ClaimedRun]:
        claimed: list[ClaimedRun] = await self._store.claim_runs(request)
        self._count_claims(claimed)
        return claimed

    async def _begin_run(self, beginning: Beginning) -> Receipt:
        """A claim and its owner's first update at once."""
        receipt = await self._write(beginning, self._store.begin_run)
        self._meters.claims.inc()
        return receipt

    def _count_claims(self, claimed: Sequence[ClaimedRun]) -> None:
        self._meters.claims.inc(len(claimed))
        taken = sum(each.snapshot.takeovers_without_progress > 0 for each in claimed)
        self._meters.takeovers.inc(taken)

    async def _renew_leases(self, leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        answers: list[Renewal] = await self._store.renew_leases(leases, seconds)
        renewed = sum(answer.ok for answer in answers)
        self._meters.renewals.inc(renewed)
        self._meters.leases_lost.inc(len(answers) - renewed)
        return answers

    async def _settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        settled: Delivery = await self._store.settle_delivery(delivery_id, token, outcome)
        self._count_settled([outcome])
        return settled

    async def _settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        settled: list[Delivery | TenureError] = await self._store.settle_deliveries(settlements)
        self._count_settled(_taken(settlements, settled))
        return settled

    async def _settle_and_claim(
        self, settlements: Sequence[Settlement], token: str, **wanted: Any
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        answer: tuple[list[Delivery | TenureError], list[Delivery]]
        answer = await self._store.settle_and_claim(settlements, token, **wanted)
        self._count_settled(_taken(settlements, answer[0]))
        return answer

    def _count_settled(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._meters.callbacks.labels(outcome.__struct_config__.tag).inc()


def _taken(
    settlements: Sequence[Settlement], answers: Sequence[Delivery | TenureError]
) -> Iterator[Outcome]:
    """But for those that will be sent again."""
    for settlement, answer in zip(settlements, answers, strict=True):
        if not isinstance(answer, StoreUnavailable):
            yield settlement.outcome


def _may_end_its_run(update: Update) -> bool:
    events = (*update.effect.events, *(update.if_unowned.events if update.if_unowned else ()))
    return any(event.kind == "run" and event.status in TERMINAL_RUN for event in events)


def _outcome(outcome: Receipt | TenureError) -> str:
    if isinstance(outcome, Receipt):
        return "accepted"
    return "unknown" if isinstance(outcome, StoreUnavailable) else "refused"
