"""A claim that the gateway itself came to late, as its store cannot know."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.model.leasing import LATE
from tenure.model.status import Recovery
from tenure.stores.memory import InMemoryStore
from tenure.testing.contracts.acts import claim, create
from tests.gateway.house import House
from tests.runtime.puppets import Between

pytestmark = pytest.mark.slow

CLAIM = {"owner_id": "owner-b", "lease_seconds": 6 * LATE, "queues": ["default"], "limit": 5}


async def late(real: Any, *args: Any, **kwargs: Any) -> Any:
    await asyncio.sleep(LATE + 0.2)
    return await real(*args, **kwargs)


def test_what_is_asked_of_the_store_before_it_counts() -> None:
    store = Between(InMemoryStore())
    store.rules["list_workers"] = late
    with House(store) as house:
        run = house.run(create(store))
        house.run(claim(store, run.run_id, "owner-a", seconds=0.01))
        client = house.client(house.tokens()["worker"])
        careful = client("POST", "/v1/claims", CLAIM | {"dead_owners": ["owner-c"]})
        assert (careful.status, careful.json) == (200, {"leases": []})
        taken = client("POST", "/v1/claims", CLAIM)
        assert [each["run_id"] for each in taken.json["leases"]] == [run.run_id]
        client.close()


def test_those_it_does_not_take_keep_no_others_from_it() -> None:
    store = Between(InMemoryStore())
    store.rules["list_workers"] = late
    with House(store) as house:
        expired, behind = house.run(create(store)), house.run(create(store))
        house.run(claim(store, expired.run_id, "owner-a", seconds=0.01))
        client = house.client(house.tokens()["worker"])
        taken = client("POST", "/v1/claims", CLAIM | {"limit": 1, "dead_owners": ["owner-c"]})
        assert [each["run_id"] for each in taken.json["leases"]] == [behind.run_id]
        client.close()


def test_who_reconciles_through_it_then_leaves_owners_alone() -> None:
    store = Between(InMemoryStore())
    with House(store) as house:
        run = house.run(create(store, recovery=Recovery.INTERRUPT))
        house.run(claim(store, run.run_id, "owner-a", seconds=0.01))
        client = house.client(house.tokens()["admin"])
        store.rules["list_runs"] = late
        careful = client("POST", "/v1/reconcile", {})
        assert (careful.status, careful.json["interrupted"]) == (200, [])
        del store.rules["list_runs"]
        ended = client("POST", "/v1/reconcile", {})
        assert ended.json["interrupted"] == [run.run_id]
        client.close()
