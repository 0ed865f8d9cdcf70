"""Every number there is, by name."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Meters:
    """In a registry of their own: two gateways of one process do not mix."""

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
            buckets=_SECONDS,
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
            buckets=_SECONDS,
            registry=registry,
        )
        self.update_batch = Histogram(
            "tenure_update_batch_size", "Writes in a batch", buckets=_SIZES, registry=registry
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
