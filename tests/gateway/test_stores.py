"""The gateway before the stores that last: what it answers does not depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from tenure.stores.postgres import PostgresStore
from tenure.stores.sqlite import SQLiteStore
from tests.gateway.conftest import flow
from tests.gateway.house import Client, House
from tests.postgres.database import TestDatabase

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgres"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    if request.param == "sqlite":
        store: SQLiteStore | PostgresStore = SQLiteStore(tmp_path / "runs.db")
    else:
        database: TestDatabase = request.getfixturevalue("postgres_database")
        store = PostgresStore(database.url)
    with House(store) as house:
        yield house
        house.run(store.close())


@pytest.fixture
def client(lasting: House) -> Iterator[Client]:
    client = lasting.client(lasting.token("operator"))
    yield client
    client.close()


def test_a_run_from_its_birth_to_its_retry(client: Client) -> None:
    made = client.post("/v1/runs", {"workflow": flow()}, idempotency_key="one")
    run_id = made.json["run_id"]
    assert client.post("/v1/runs", {"workflow": flow()}, idempotency_key="one").json == made.json
    reused = client.post("/v1/runs", {"workflow": flow(name="x")}, idempotency_key="one")
    assert reused.problem == "idempotency-key-reused"
    got = client.get(f"/v1/runs/{run_id}")
    assert got.json == {**got.json, **made.json}, "the summary is a part of it"
    assert client.get(f"/v1/runs/{run_id}", if_none_match=got.headers["etag"]).status == 304
    assert [run["run_id"] for run in client.get("/v1/runs").json["runs"]] == [run_id]
    assert [run["run_id"] for run in client.get("/v1/runnable").json["runs"]] == [run_id]
    assert client.post(f"/v1/runs/{run_id}/cancel").json["status"] == "canceled"
    retry = client.post(f"/v1/runs/{run_id}/retry", idempotency_key="two").json
    assert client.post(f"/v1/runs/{run_id}/retry", idempotency_key="two").json == retry
    reused = client.post(f"/v1/runs/{run_id}/retry", {"approve": True}, idempotency_key="two")
    assert reused.problem == "idempotency-key-reused"
    assert (retry["retry_of"], retry["status"], retry["owner_id"]) == (run_id, "queued", None)
    events = client.get(f"/v1/runs/{retry['run_id']}/events").json["events"]
    assert [event["type"] for event in events] == ["run.queued"]
    assert client.get(f"/v1/runs/{run_id}/definition").json["files"] == []
    assert client.get(f"/v1/runs/{run_id}/logs").json == {"streams": []}
    assert client.get("/v1/workers").json == {"workers": []}
    assert client.get("/readyz").json == {"ready": True, "store": "ok"}


def test_a_store_that_is_gone_is_told_without_its_address(lasting: House, client: Client) -> None:
    assert client.get("/v1/runs").status == 200
    lasting.run(lasting.store.close())  # type: ignore[attr-defined]
    answer = client.get("/v1/runs/some-run-id")
    assert answer.status == 503
    assert answer.problem in ("store-unavailable", "store-unusable")
    for word in (b"/tmp", b"sqlite", b"postgres", b"localhost", b"closed"):
        assert word not in answer.body
    ready = client.get("/readyz")
    assert (ready.status, ready.json["ready"]) == (503, False)
    assert client.get("/healthz").status == 200


class TestEdgesOfWhatCanBeKept:
    @pytest.mark.parametrize(
        "query",
        ["created_from=0001-01-01T00:00:00%2B14:00", "created_to=9999-12-31T23:59:59-14:00"],
    )
    def test_any_moment_can_be_asked_for(self, client: Client, query: str) -> None:
        made = client.post("/v1/runs", {"workflow": flow()}).json
        runs = client.get(f"/v1/runs?{query}").json["runs"]
        assert [run["run_id"] for run in runs] == [made["run_id"]]

    def test_a_run_after_the_last_year_is_refused(self, client: Client) -> None:
        never = {"run_after": "9999-12-31T23:59:59-01:00"}
        refused = client.post("/v1/runs", {"workflow": flow(), "options": never})
        assert (refused.status, refused.problem) == (422, "invalid-options")
        assert client.get("/v1/runs").status == 200

    def test_names_with_control_characters_are_refused(self, lasting: House) -> None:
        worker = lasting.client(lasting.token("worker"))
        claim = {"owner_id": "a/b", "seconds": 60, "claim_id": "one"}
        for wrong in (
            worker.post("/v1/workers/%00x", {"queues": ["default"]}),
            worker.post("/v1/workers/a%0Ab", {"queues": ["default"]}),
            worker.post("/v1/workers/ab%0A", {"queues": ["default"]}),
            worker.post("/v1/workers/x", {"queues": ["de\0fault"]}),
            worker.post("/v1/claims", claim | {"owner_id": "a\0b"}),
            worker.post("/v1/claims", claim | {"queues": ["de\0fault"]}),
            worker.get("/v1/runs?queue=%00"),
        ):
            assert (wrong.status, wrong.problem) == (400, "malformed"), wrong
        worker.close()


def test_readiness_notices_a_store_that_was_migrated_meanwhile(
    lasting: House, client: Client, request: pytest.FixtureRequest
) -> None:
    assert client.get("/v1/runs").status == 200
    with _migrated_further(lasting, request):
        ready = client.get("/readyz")
        assert (ready.status, ready.json) == (503, {"ready": False, "store": "incompatible"})


@contextmanager
def _migrated_further(house: House, request: pytest.FixtureRequest) -> Iterator[None]:
    """As a newer version would."""
    if isinstance(house.store, SQLiteStore):
        with apsw.Connection(str(house.store.path)) as connection:
            connection.pragma("user_version", 99)
        yield
        return
    database: TestDatabase = request.getfixturevalue("postgres_database")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("insert into tenure.migrations values (99, now())")
        try:
            yield
        finally:
            connection.execute("delete from tenure.migrations where number = 99")
