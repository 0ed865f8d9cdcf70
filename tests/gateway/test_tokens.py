"""Tokens: who gets in, how far, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tenure
from tenure.gateway.problems import CannotListen, NotSafe
from tenure.gateway_process import GatewayProcess
from tenure.model.tokens import PREFIX, Role, Token, bearer_of, digest_of, written
from tenure.stores.memory import InMemoryStore
from tests.gateway.conftest import flow
from tests.gateway.house import Client, House

KNOWN = {
    name: Token(id=name, name=name, role=Role.VIEWER, digest=digest_of(f"secret-{name}"))
    for name in ("one", "two")
}


@pytest.fixture
def limited(house: House) -> Iterator[Client]:
    """May see and touch runs of one queue."""
    client = house.client(house.token("operator", "web team", queues=("web",)))
    yield client
    client.close()


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    """A gateway that asks for no token, although there is one."""
    with House(InMemoryStore(), no_token=True) as house:
        house.token("viewer")
        yield house


def test_a_secret_opens_with_its_own_id_only() -> None:
    assert bearer_of(written("one", "secret-one"), KNOWN) is KNOWN["one"]
    for text in (
        written("two", "secret-one"),
        written("one", "secret-on"),
        written("one", ""),
        "one_secret-one",
        PREFIX,
        "",
        f"{PREFIX}one",
    ):
        assert bearer_of(text, KNOWN) is None, text


@pytest.mark.slow
def test_a_new_token_is_known_at_once_and_a_revoked_one_within_a_second(house: House) -> None:
    client = house.client(house.token("viewer", "new"))
    assert client.get("/v1/runs").status == 200
    newest = house.run(house.store.list_tokens())[-1]  # type: ignore[attr-defined]
    house.run(house.store.revoke_token(newest.id))  # type: ignore[attr-defined]
    while client.get("/v1/runs").status == 200:
        pass  # the time limit of tests ends this, should it not end by itself
    assert client.get("/v1/runs").status == 401
    client.close()


@pytest.mark.parametrize(
    "given", ["Basic YWRtaW46YWRtaW4=", "Bearer", "bearer ", "tenure_x_y", "Bearer  a b c", ","]
)
def test_other_ways_to_say_who_one_is_are_refused(house: House, given: str) -> None:
    client = house.client()
    answer = client.get("/v1/runs", authorization=given)
    assert (answer.status, answer.problem) == (401, "unauthorized")
    client.close()


def test_a_token_in_the_address_is_no_token(house: House, tokens: dict[str, str]) -> None:
    client = house.client()
    answer = client.get(f"/v1/runs?access_token={tokens['admin']}")
    assert (answer.status, answer.problem) == (401, "unauthorized")
    client.close()


class TestALimitedToken:
    def test_sees_runs_of_its_queue_only(
        self, limited: Client, operator: Client, run_id: str
    ) -> None:
        for queue, made in (("web", f"{run_id}-web"), ("db", f"{run_id}-db")):
            options = {"run_id": made, "queue": queue}
            operator.post("/v1/runs", {"workflow": flow(), "options": options})
        assert limited.get(f"/v1/runs/{run_id}-web").status == 200
        for path in ("", "/events", "/explain", "/definition", "/logs", "/logs/0/web1"):
            answer = limited.get(f"/v1/runs/{run_id}-db{path}")
            assert (answer.status, answer.problem) == (404, "run-not-found"), path
        assert {run["queue"] for run in limited.get("/v1/runs").json["runs"]} == {"web"}
        assert {run["queue"] for run in limited.get("/v1/runnable").json["runs"]} == {"web"}

    def test_touches_runs_of_its_queue_only(
        self, limited: Client, operator: Client, run_id: str
    ) -> None:
        options = {"run_id": run_id, "queue": "db"}
        operator.post("/v1/runs", {"workflow": flow(), "options": options})
        for verb in ("cancel", "retry", "annotate"):
            body: dict[str, Any] = {"data": {}} if verb == "annotate" else {}
            assert limited.post(f"/v1/runs/{run_id}/{verb}", body).problem == "run-not-found"
        assert operator.get(f"/v1/runs/{run_id}").json["version"] == 1
        for options in ({"queue": "db"}, {}):
            answer = limited.post("/v1/runs", {"workflow": flow(), "options": options})
            assert (answer.status, answer.problem) == (403, "forbidden")
        queued = limited.post("/v1/runs", {"workflow": flow(), "options": {"queue": "web"}})
        assert queued.status == 201

    def test_is_told_what_it_cannot_have(self, limited: Client) -> None:
        for answer in (
            limited.get("/v1/runs?queue=db"),
            limited.get("/v1/events"),
            limited.get("/v1/callbacks"),
            limited.post("/v1/reconcile"),
        ):
            assert (answer.status, answer.problem) == (403, "forbidden")


class TestWithoutTokens:
    """A gateway with ``--no-token``."""

    def test_this_machine_may_do_everything(self, home: House) -> None:
        client = home.client()
        assert client.post("/v1/runs", {"workflow": flow()}).status == 201
        assert len(client.get("/v1/runs").json["runs"]) == 1
        client.close()

    @pytest.mark.parametrize("name", ["127.0.0.2:80", "[::1]:80", "localhost:80"])
    def test_under_whichever_address_leads_nowhere_else(self, home: House, name: str) -> None:
        client = home.client()
        assert client.get("/v1/runs", host=name).status == 200
        client.close()

    def test_a_page_of_another_site_changes_nothing(self, home: House) -> None:
        client = home.client()
        for origin in ("https://evil.example", "http://localhost:1", "null", "http://[", ""):
            answer = client.post("/v1/runs", {"workflow": flow()}, origin=origin)
            assert (answer.status, answer.problem) == (403, "foreign-origin"), origin
            assert client.get("/v1/runs", origin=origin).status == 403, origin
        own = f"http://127.0.0.1:{home.port}"
        assert client.post("/v1/runs", {"workflow": flow()}, origin=own).status == 201
        client.close()

    def test_a_name_that_was_made_to_lead_here_reads_nothing(self, home: House) -> None:
        client = home.client()
        for host in ("evil.example", f"evil.example:{home.port}", "[", "127.0.0.1.evil.example"):
            answer = client.get("/v1/runs", host=host)
            assert (answer.status, answer.problem) == (403, "foreign-origin"), host
        assert client.get("/v1/runs", host="localhost").status == 200
        client.close()

    @pytest.mark.parametrize(
        "name", ["forwarded", "via", "x-real-ip", "x-forwarded-for", "X-Forwarded-Host"]
    )
    def test_what_a_proxy_passes_on_is_refused(self, home: House, name: str) -> None:
        """One on this machine that rewrites Host would open it to everyone."""
        client = home.client()
        answer = client("GET", "/v1/runs", headers={name: "192.0.2.7"})
        assert (answer.status, answer.problem) == (403, "foreign-origin")
        client.close()

    def test_a_form_of_another_site_is_no_json(self, home: House) -> None:
        client = home.client()
        plain = {"content-type": "text/plain"}
        answer = client("POST", "/v1/runs", data=b"{}", headers=plain)
        assert (answer.status, answer.problem) == (415, "unsupported-media-type")
        client.close()


def test_with_a_token_the_page_that_asks_does_not_matter(operator: Client) -> None:
    made = operator.post("/v1/runs", {"workflow": flow()}, origin="https://dashboard.example")
    assert made.status == 201


def test_without_any_token_nobody_gets_in() -> None:
    with House(InMemoryStore()) as house:
        client = house.client()
        answer = client.get("/v1/runs")
        assert (answer.status, answer.problem) == (401, "unauthorized")
        assert client.get("/healthz").status == 200
        client.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7"])
async def test_without_tokens_it_listens_on_loopback_only(host: str) -> None:
    store = InMemoryStore()
    async with tenure.Runner(store) as runner:
        with pytest.raises(NotSafe, match=r"--no-token"):
            async with GatewayProcess(store, runner, no_token=True).open(host, 0):
                pass


async def test_a_name_that_nobody_knows_is_said_before_anything_else() -> None:
    store = InMemoryStore()
    async with tenure.Runner(store) as runner:
        with pytest.raises(CannotListen, match=r"cannot listen on nohost\.invalid:80"):
            async with GatewayProcess(store, runner).open("nohost.invalid", 80):
                pass
