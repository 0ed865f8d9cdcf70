"""Prometheus metrics.

*Counters* are of this process: requests, and calls of its store (``measured``). Sums over all
gateways are right; a worker that uses the store directly is not in them. *Gauges* are of the store
(``StoreNumbers``): read at most every few seconds, however often they are scraped, and bounded,
however large the store. Nothing is written, and no request waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tenure.model.errors import LeaseLost, StoreUnavailable, TenureError
from tenure.model.leases import Beginning, ClaimedRun, ClaimRequest, Lease, Renewal
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.status import TERMINAL_RUN
from tenure.model.update import LeaseRequest, NewRun, Receipt, Update, Write
from tenure.ports.store import Census, CensusTaking, RunStateStore

_DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Meters:
    """Every counter, in a registry of its own: two gateways of one process do not mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "tenure_http_requests",
            "Requests that were answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "tenure_http_request_seconds",
            "From a request to its answer; streams are left out",
            ["route"],
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self.streams = Gauge(
            "tenure_http_streams", "Streams that are open", ["route"], registry=registry
        )
        self.runs_created = Counter(
            "tenure_runs_created", "Runs created through this process", registry=registry
        )
        self.runs_ended = Counter(
            "tenure_runs_ended", "Runs ended through this process", ["status"], registry=registry
        )
        self.updates = Counter(
            "tenure_updates", "Writes sent to the store", ["outcome"], registry=registry
        )
        self.update_seconds = Histogram(
            "tenure_update_seconds",
            "How long the store took for a batch of writes",
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self.update_batch = Histogram(
            "tenure_update_batch_size",
            "Writes in a batch",
            buckets=_SIZE_BUCKETS,
            registry=registry,
        )
        self.claims = Counter("tenure_claims", "Runs claimed", registry=registry)
        self.takeovers = Counter(
            "tenure_takeovers", "Runs claimed from an owner that was lost", registry=registry
        )
        self.renewals = Counter("tenure_renewals", "Leases renewed", registry=registry)
        self.leases_lost = Counter(
            "tenure_leases_lost", "Owners told that a run is not theirs", registry=registry
        )
        self.callbacks = Counter(
            "tenure_callbacks_settled",
            "Attempts to deliver a callback, by how they ended",
            ["outcome"],
            registry=registry,
        )


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
    """``store`` with its calls counted; it has the same protocols. ``clock`` counts seconds."""
    kind = type(type(store).__name__, (MeasuredStore,), {})  # messages name a store by its class
    return cast(S, kind(store, meters, clock))


class MeasuredStore:
    """Everything of the store becomes an attribute of this object, so that ``isinstance`` finds the
    same protocols; the counted calls are then replaced."""

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
        """A claim and its owner's first update in one."""
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
    """Outcomes without those that will be sent again."""
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


CENSUS_TTL_S = 5.0
"""Seconds for which a census is cached."""
_CENSUS_TIMEOUT_S = 2.0
"""After it the store counts as away."""


class StoreNumbers(Collector):
    """Gauges of the store, from a cached census. ``clock`` counts seconds."""

    def __init__(
        self, store: RunStateStore, registry: CollectorRegistry, clock: Callable[[], float]
    ) -> None:
        self._store = store if isinstance(store, CensusTaking) else None
        self._clock = clock
        self._census: Census | None = None
        self._taken_at: float | None = None
        self._taking = asyncio.Lock()
        registry.register(self)

    async def refresh(self) -> None:
        """Read the census, before a scrape. A store that does not answer has no numbers."""
        async with self._taking:
            now = self._clock()
            if self._store is None or (
                self._taken_at is not None and now - self._taken_at < CENSUS_TTL_S
            ):
                return
            self._taken_at = now
            try:
                async with asyncio.timeout(_CENSUS_TIMEOUT_S):
                    self._census = await self._store.take_census()
            except (TenureError, TimeoutError):
                self._census = None

    def collect(self) -> Iterator[Metric]:
        if self._store is None or self._taken_at is None:
            return
        up = self._census is not None
        yield GaugeMetricFamily("tenure_store_up", "Whether the store answers", value=float(up))
        if self._census is not None:
            yield from _families(self._census)


def _families(census: Census) -> Iterator[Metric]:
    runs = GaugeMetricFamily("tenure_runs", "Runs that the store has", labels=["status"])
    for status, number in census.runs.items():
        runs.add_metric([status], number)
    yield runs
    callbacks = GaugeMetricFamily(
        "tenure_callbacks", "Callbacks that were not delivered", labels=["state"]
    )
    callbacks.add_metric(["waiting"], census.callbacks_waiting)
    callbacks.add_metric(["dead"], census.callbacks_dead)
    yield callbacks
    depth = GaugeMetricFamily(
        "tenure_queue_runs", "Runs that a worker could claim now", labels=["queue"]
    )
    age = GaugeMetricFamily(
        "tenure_queue_oldest_seconds",
        "How long the run that became ready first has waited",
        labels=["queue"],
    )
    for length in census.queues:
        depth.add_metric([length.queue], length.runs)
        age.add_metric([length.queue], length.oldest_seconds)
    yield depth
    yield age
