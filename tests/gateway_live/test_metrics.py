"""The numbers: right, cheap, and not for everybody."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenure.gateway.metrics import Meters, measured
from tenure.model.errors import StoreUnavailable
from tenure.model.status import RunStatus
from tenure.testing.contracts.acts import create, create_embedded, write
from tenure.testing.factories import (
    cancel,
    change_run,
    claim_request,
    end_run,
    start_step,
)
from tests.gateway_live.conftest import until
from tests.gateway_live.viewers import looking

pytestmark = pytest.mark.slow

Gateways = Callable[..., Any]
Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(address: str) -> Numbers:
    async with looking(address, "/metrics") as answer:
        assert answer.status == 200
        body = await answer.exactly()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def number(numbers: Numbers, name: str, **labels: str) -> float | None:
    return numbers.get((name, frozenset(labels.items())))


async def test_requests_are_counted_by_route_and_not_by_what_was_asked_for(
    memory: Any, gateways: Gateways
) -> None:
    gateway = await gateways(memory)
    run = await create(memory)
    for path in (f"/v1/runs/{run.run_id}", "/v1/runs/another-run-1", "/nowhere/at/all"):
        async with looking(gateway.address, path):
            pass
    numbers = await scraped(gateway.address)
    known = {"method": "GET", "route": "/v1/runs/{run_id}"}
    assert number(numbers, "tenure_http_requests_total", status="200", **known) == 1
    assert number(numbers, "tenure_http_requests_total", status="404", **known) == 1
    assert number(numbers, "tenure_http_requests_total", method="GET", route="none", status="404")
    seconds = number(numbers, "tenure_http_request_seconds_count", route="/v1/runs/{run_id}")
    assert seconds == 2


async def test_open_streams_are_counted_while_they_are(memory: Any, gateways: Gateways) -> None:
    gateway = await gateways(memory)
    run = await create(memory)
    route = "/v1/runs/{run_id}/events"
    async with looking(gateway.address, f"/v1/runs/{run.run_id}/events") as viewer:
        await viewer.some(1)
        numbers = await scraped(gateway.address)
        assert number(numbers, "tenure_http_streams", route=route) == 1
    await gateway.until_idle()
    streams = gateway.meters.streams.labels(route)
    await until(lambda: streams._value.get() == 0)


async def test_what_goes_through_the_store_is_counted(memory: Any, gateways: Gateways) -> None:
    meters = Meters()
    store = measured(memory, meters, monotonic)
    gateway = await gateways(store, meters=meters)
    await create(store)
    (claimed,) = await store.claim_runs(claim_request())
    await store.renew_leases([claimed.lease], 60)
    lost = await create_embedded(store)
    await store.update_runs([start_step(lost), change_run(lost, message="too late")])
    await write(store, end_run(await create_embedded(store), RunStatus.FAILED))
    await write(store, cancel(await create(store)))
    numbers = await scraped(gateway.address)
    assert number(numbers, "tenure_runs_created_total") == 4
    assert number(numbers, "tenure_runs_ended_total", status="failed") == 1
    assert number(numbers, "tenure_runs_ended_total", status="canceled") == 1
    assert number(numbers, "tenure_claims_total") == 1
    assert number(numbers, "tenure_renewals_total") == 1
    assert number(numbers, "tenure_updates_total", outcome="accepted") == 7
    assert number(numbers, "tenure_updates_total", outcome="refused") == 1
    assert number(numbers, "tenure_update_batch_size_sum") == 8


async def test_store_is_asked_now_and_then_however_often_somebody_scrapes(
    memory: Any, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    take = memory.take_census

    async def counted(**how: Any) -> Any:
        asked.append(1)
        return await take(**how)

    monkeypatch.setattr(memory, "take_census", counted)
    gateway = await gateways(memory)
    await create(memory, queue="gpu")
    await write(memory, end_run(await create_embedded(memory), RunStatus.FAILED))
    for _ in range(20):
        await scraped(gateway.address)
    numbers = await scraped(gateway.address)
    assert asked == [1]
    runs = {status: number(numbers, "tenure_runs", status=status) for status in RunStatus}
    assert runs == {**dict.fromkeys(RunStatus, 0), RunStatus.QUEUED: 1, RunStatus.FAILED: 1}
    assert number(numbers, "tenure_queue_runs", queue="gpu") == 1
    assert number(numbers, "tenure_store_up") == 1


async def test_store_that_is_away_has_no_numbers_and_says_so(
    memory: Any, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(**_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(memory, "take_census", away)
    gateway = await gateways(memory)
    numbers = await scraped(gateway.address)
    assert number(numbers, "tenure_store_up") == 0
    assert number(numbers, "tenure_runs", status="queued") is None
