"""The store's numbers: a moment old, whoever asks how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tenure.model.errors import TenureError
from tenure.ports.census import Census, CensusTaking
from tenure.ports.run_store import RunStateStore

FRESH = 5.0
"""Seconds for which a census is told again."""
_PATIENCE = 2.0
"""For the store to answer; then it is told as away."""


class StoreNumbers(Collector):
    """``clock`` counts seconds."""

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
        """Before they are collected. A store that does not answer has no numbers."""
        async with self._taking:
            now = self._clock()
            if self._store is None or (self._taken_at is not None and now - self._taken_at < FRESH):
                return
            self._taken_at = now
            try:
                async with asyncio.timeout(_PATIENCE):
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
        "For how long the one that became ready first has waited",
        labels=["queue"],
    )
    for length in census.queues:
        depth.add_metric([length.queue], length.runs)
        age.add_metric([length.queue], length.oldest_seconds)
    yield depth
    yield age
