"""A lease is the token's that claimed it: owner and fence, which viewers see, are of no use to
others."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
import pytest

from tenure.model.update import Update
from tenure.testing.factories import (
    lease_request,
    new_run,
    start_run,
    unique,
)
from tests.gateway.conftest import stored
from tests.gateway.house import Answer, Client, House

OWNER = "site-1/boot/4026/17/99/a1"


@pytest.fixture
def clients(lasting_or_not: House) -> Iterator[dict[str, Client]]:
    """Of two workers' tokens, and of an admin's."""
    house = lasting_or_not
    with ExitStack() as opened:
        made = {
            name: house.client(house.token(role, name))
            for name, role in (("one", "worker"), ("other", "worker"), ("admin", "admin"))
        }
        for client in made.values():
            opened.callback(client.close)
        yield made


def run_in(house: House) -> str:
    new = new_run(run_id=unique("bound"), queue=unique("queue"))
    house.run(house.store.create_run(new))
    return new.snapshot.run_id


def claimed(client: Client, run_id: str, **rest: Any) -> Answer:
    asked = {"owner_id": OWNER, "lease_seconds": 60, **rest}
    return client.post(f"/v1/runs/{run_id}/lease", asked)


def written(client: Client, update: Update) -> dict[str, Any]:
    data = msgspec.json.encode({"writes": [update]})
    headers = {"content-type": "application/json"}
    (outcome,) = client("POST", "/v1/updates", data=data, headers=headers).json["outcomes"]
    return dict(outcome)


def attempts(house: House, client: Client, run_id: str) -> dict[str, str]:
    """What comes of all that an owner does, under the owner's very name and fence."""
    run = stored(house, run_id)
    held = {"owner_id": OWNER, "fence": run.fence}
    chunk = {"step": 0, "host": "web1", "stream": "stdout", "offset": 0}
    text = base64.b64encode(b"x").decode()
    path = f"/v1/runs/{run_id}"
    renewing = {"leases": [{"run_id": run_id, **held}], "lease_seconds": 60}
    (renewal,) = client.post("/v1/renewals", renewing).json["renewals"]
    outcome = written(client, start_run(run))
    answers = {
        "claim": claimed(client, run_id),
        "renew": client("PUT", f"{path}/lease", {**held, "lease_seconds": 60}),
        "append": client.post(f"{path}/logs/chunk", {**held, **chunk, "data": text}),
        "heartbeat": client.post(f"/v1/workers/{quote(OWNER, safe='')}", {"seconds": 60}),
        "leave": client("DELETE", f"/v1/workers/{quote(OWNER, safe='')}"),
        "release": client("DELETE", f"{path}/lease?owner_id={OWNER}&fence={run.fence}"),
    }
    named = {what: "ok" if each.status < 300 else each.problem for what, each in answers.items()}
    problem = outcome["problem"]
    named["update"] = problem["type"].rpartition(":")[2] if problem else "ok"
    named["renewals"] = "ok" if renewal["ok"] else "refused"
    return named


REFUSED = {
    "claim": "lease-held",
    "renew": "lease-lost",
    "renewals": "refused",
    "update": "lease-lost",
    "append": "lease-lost",
    "release": "lease-lost",
}


def test_another_token_does_nothing_with_a_lease(
    lasting_or_not: House, clients: dict[str, Client]
) -> None:
    house, run_id = lasting_or_not, run_in(lasting_or_not)
    assert claimed(clients["one"], run_id).status == 200
    clients["one"].post(f"/v1/workers/{quote(OWNER, safe='')}", {"seconds": 60})
    before = stored(house, run_id)
    tried = attempts(house, clients["other"], run_id)
    assert tried == {**REFUSED, "heartbeat": "forbidden", "leave": "forbidden"}
    assert stored(house, run_id) == before
    assert set(attempts(house, clients["one"], run_id).values()) == {"ok"}


def test_an_admin_may(lasting_or_not: House, clients: dict[str, Client]) -> None:
    house, run_id = lasting_or_not, run_in(lasting_or_not)
    claimed(clients["one"], run_id)
    assert set(attempts(house, clients["admin"], run_id).values()) == {"ok"}


def test_a_lease_claimed_at_the_store_is_of_no_use_to_any_token(
    lasting_or_not: House, clients: dict[str, Client]
) -> None:
    """Also if the token had the run before."""
    house, run_id = lasting_or_not, run_in(lasting_or_not)
    first = claimed(clients["one"], run_id).json
    gone = f"/v1/runs/{run_id}/lease?owner_id={OWNER}&fence={first['fence']}"
    assert clients["one"]("DELETE", gone).status == 204
    house.run(house.store.claim_run(run_id, lease_request(OWNER)))  # type: ignore[attr-defined]
    tried = attempts(house, clients["one"], run_id)
    assert {what: tried[what] for what in REFUSED} == REFUSED


def test_the_same_claim_is_known_again_by_its_own_token_only(
    lasting_or_not: House, clients: dict[str, Client]
) -> None:
    house, run_id = lasting_or_not, run_in(lasting_or_not)
    queue = stored(house, run_id).queue
    asked = {"owner_id": OWNER, "lease_seconds": 60, "queues": [queue], "claim_id": unique("c")}
    (first,) = clients["one"].post("/v1/claims", asked).json["leases"]
    assert clients["other"].post("/v1/claims", asked).json["leases"] == []
    (again,) = clients["one"].post("/v1/claims", asked).json["leases"]
    assert (again["run_id"], again["fence"]) == (run_id, first["fence"])


def test_an_owner_of_another_token_is_not_said_to_be_dead(
    lasting_or_not: House, clients: dict[str, Client]
) -> None:
    house, run_id = lasting_or_not, run_in(lasting_or_not)
    dead, neighbour = (f"site-1/boot/4026/18/99/{uuid4().hex[:8]}" for _ in range(2))
    claimed(clients["one"], run_id, owner_id=dead)
    asked = {
        "owner_id": neighbour,
        "lease_seconds": 60,
        "queues": [stored(house, run_id).queue],
        "dead_owners": [dead],
    }
    assert clients["other"].post("/v1/claims", asked).json["leases"] == []
    (taken,) = clients["one"].post("/v1/claims", asked).json["leases"]
    assert taken["run_id"] == run_id
