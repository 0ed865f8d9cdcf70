"""What a token that is limited to queues has to do with workers, hints and numbers of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from tenure.gateway import wakeups
from tenure.model.leases import Lease, Renewal
from tenure.testing.factories import new_run
from tests.gateway.conftest import flow
from tests.gateway.house import Client, House

Limited = Callable[..., Client]


@pytest.fixture
def limited(house: House) -> Iterator[Limited]:
    """``limited(role, *queues)``."""
    with ExitStack() as opened:

        def client(role: str, *queues: str) -> Client:
            made = house.client(house.token(role, f"{role} of {queues}", queues=queues))
            opened.callback(made.close)
            return made

        yield client


def present(client: Client) -> dict[str, Any]:
    return {each["owner_id"]: each for each in client.get("/v1/workers").json["workers"]}


def says(*queues: str) -> dict[str, Any]:
    return {"seconds": 60, "queues": queues}


def test_workers_and_what_they_hold_are_shown_to_who_shares_a_queue(
    limited: Limited, worker: Client, operator: Client, run_id: str
) -> None:
    for name, queues in (("w-a", "a"), ("w-ab", "ab"), ("w-b", "b")):
        assert worker.post(f"/v1/workers/{name}", says(*queues)).status == 204
    for queue in "ab":
        options = {"run_id": f"{run_id}-{queue}", "queue": queue}
        operator.post("/v1/runs", {"workflow": flow(), "options": options})
        lease = {"owner_id": "w-ab", "lease_seconds": 60}
        assert worker.post(f"/v1/runs/{run_id}-{queue}/lease", lease).status == 200
    seen = present(limited("viewer", "a"))
    assert {name for name in seen if name.startswith("w-")} == {"w-a", "w-ab"}
    assert seen["w-ab"]["runs"] == [f"{run_id}-a"]
    assert set(present(operator)["w-ab"]["runs"]) == {f"{run_id}-a", f"{run_id}-b"}


def test_a_limited_worker_speaks_for_its_own_queues_only(limited: Limited, worker: Client) -> None:
    mine = limited("worker", "a")
    worker.post("/v1/workers/w-both", says("a", "b"))
    worker.post("/v1/workers/w-other", says("b"))
    for answer in (
        mine.post("/v1/workers/w-new", says("b")),
        mine.post("/v1/workers/w-new", says("a", "b")),
        mine.post("/v1/workers/w-other", says("a")),
        mine("DELETE", "/v1/workers/w-other"),
        mine("DELETE", "/v1/workers/w-both"),
    ):
        assert (answer.status, answer.problem) == (403, "forbidden")
    seen = present(worker)
    assert (seen["w-both"]["queues"], seen["w-other"]["queues"]) == (["a", "b"], ["b"])
    assert "w-new" not in seen
    assert mine.post("/v1/workers/w-new", says("a")).status == 204
    assert mine("DELETE", "/v1/workers/w-new").status == 204
    assert "w-new" not in present(worker)


def test_a_worker_is_called_what_it_calls_itself(worker: Client) -> None:
    for name in ("a/b", "a b?"):
        assert worker.post(f"/v1/workers/{quote(name, safe='')}", says("default")).status == 204
        assert name in present(worker)
        assert worker("DELETE", f"/v1/workers/{quote(name, safe='')}").status == 204
    for name in ("a\nb", "\n"):
        refused = worker.post(f"/v1/workers/{quote(name, safe='')}", says("default"))
        assert (refused.status, refused.problem) == (400, "malformed")


def test_hints_are_for_workers_of_the_queue(
    limited: Limited, operator: Client, worker: Client, tokens: dict[str, str]
) -> None:
    asked = {"topics": ["queue:b"], "wait": 0}
    for client in (limited("worker", "a"), limited("viewer", "b"), operator):
        answer = client.post("/v1/wakeups", asked)
        assert (answer.status, answer.problem) == (403, "forbidden")
    for client in (limited("worker", "a", "b"), worker):
        assert client.post("/v1/wakeups", asked).status == 200


def test_who_waits_for_too_much_takes_no_room_from_others(
    limited: Limited, worker: Client, operator: Client, queued: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(wakeups, "_MAX_SUBSCRIPTIONS_PER_TOKEN", 2)
    greedy = limited("worker", "x", "y", "z")
    first, second, third = (
        greedy.post("/v1/wakeups", {"topics": [f"queue:{queue}"], "wait": 0}) for queue in "xyz"
    )
    assert (first.status, second.status, third.problem) == (200, 200, "busy")
    assert worker.post("/v1/wakeups", {"topics": ["queue:z"], "wait": 0}).status == 200


def test_a_lease_is_renewed_whoever_else_waits(
    worker: Client, operator: Client, queued: str, monkeypatch: Any
) -> None:
    lease = worker.post(f"/v1/runs/{queued}/lease", {"owner_id": "w-1", "lease_seconds": 60}).json
    held = {"run_id": queued, "owner_id": "w-1", "fence": lease["fence"]}
    monkeypatch.setattr(wakeups, "_MAX_SUBSCRIPTIONS_PER_TOKEN", 0)
    answer = worker.post("/v1/renewals?wait=0.1", {"lease_seconds": 60, "leases": [held]})
    (renewal,) = answer.json["renewals"]
    assert renewal["ok"]
    assert renewal["expires_at"] > lease["expires_at"]


def test_a_lease_that_was_not_renewed_is_not_said_to_be(
    house: House, worker: Client, operator: Client, queued: str, monkeypatch: Any
) -> None:
    """Somebody was just writing its run: it ends when it would have, and is to be sent again."""
    lease = worker.post(f"/v1/runs/{queued}/lease", {"owner_id": "w-1", "lease_seconds": 60}).json
    held = {"run_id": queued, "owner_id": "w-1", "fence": lease["fence"]}

    async def busy(leases: Sequence[Lease], seconds: float) -> list[Renewal]:
        return [Renewal(run_id=each.run_id, ok=True, busy=True) for each in leases]

    monkeypatch.setattr(house.store, "renew_leases", busy)
    asked = {"owner_id": "w-1", "fence": lease["fence"], "lease_seconds": 60}
    alone = worker("PUT", f"/v1/runs/{queued}/lease", asked)
    assert (alone.status, alone.problem) == (503, "store-unavailable")
    assert "send the same request again" in alone.json["detail"]
    answer = worker.post("/v1/renewals?wait=20", {"lease_seconds": 60, "leases": [held]})
    (renewal,) = answer.json["renewals"]
    assert (renewal["ok"], renewal["busy"]) == (True, True)


class TestAnOwnerSaidToBeDead:
    """A run that it holds is taken over at once if the asker can know, and nobody knows better."""

    ASKER = "elsewhere/boot-1/4026/17/99/a1"
    NEIGHBOUR = "elsewhere/boot-1/4026/16/98/b2"

    @pytest.fixture
    def taken(self, worker: Client, operator: Client, run_id: str) -> Callable[[str], bool]:
        def is_taken(dead: str) -> bool:
            options = {"run_id": run_id, "queue": run_id}
            operator.post("/v1/runs", {"workflow": flow(), "options": options})
            worker.post(f"/v1/runs/{run_id}/lease", {"owner_id": dead, "lease_seconds": 600})
            asker = dead.rpartition("/")[0] + "/a1" if "elsewhere" not in dead else self.ASKER
            claim = {"owner_id": asker, "lease_seconds": 60, "queues": [run_id]}
            answer = worker.post("/v1/claims", {**claim, "dead_owners": [dead]})
            return bool(answer.json["leases"])

        return is_taken

    def test_of_the_askers_machine_is_believed(self, taken: Callable[[str], bool]) -> None:
        assert taken(self.NEIGHBOUR)

    @pytest.mark.parametrize(
        "dead",
        ["elsewhere/boot-2/4026/16/98/b2", "elsewhere/boot-1/4027/16/98/b2", "elsewhere-honest"],
    )
    def test_of_another_machine_is_not(self, taken: Callable[[str], bool], dead: str) -> None:
        assert not taken(dead)

    def test_who_says_to_be_there_is_not(
        self, worker: Client, taken: Callable[[str], bool]
    ) -> None:
        worker.post(f"/v1/workers/{self.NEIGHBOUR}", says("default"))
        assert not taken(self.NEIGHBOUR)
        worker("DELETE", f"/v1/workers/{self.NEIGHBOUR}")

    def test_whom_the_gateway_itself_sees_gone_is(
        self, worker: Client, taken: Callable[[str], bool], dead_owner: str
    ) -> None:
        worker.post(f"/v1/workers/{dead_owner}", says("default"))
        assert taken(dead_owner)

    def test_is_not_reconciled_on_a_workers_word(
        self, worker: Client, operator: Client, run_id: str
    ) -> None:
        options = {"run_id": run_id, "recovery": "interrupt"}
        operator.post("/v1/runs", {"workflow": flow(), "options": options})
        lease = {"owner_id": self.NEIGHBOUR, "lease_seconds": 600}
        assert worker.post(f"/v1/runs/{run_id}/lease", lease).status == 200
        claim = {"owner_id": self.ASKER, "lease_seconds": 60, "purpose": "reconcile", "limit": 100}
        worker.post("/v1/claims", {**claim, "dead_owners": [self.NEIGHBOUR]})
        assert operator.get(f"/v1/runs/{run_id}").json["owner_id"] == self.NEIGHBOUR


def test_numbers_of_all_runs_are_for_who_may_see_all(limited: Limited, operator: Client) -> None:
    answer = limited("admin", "a").get("/metrics")
    assert (answer.status, answer.problem) == (403, "forbidden")
    assert operator.get("/metrics").status == 200


class TestATokenOfOneQueue:
    def test_learns_of_no_id_of_another(
        self, limited: Limited, operator: Client, run_id: str
    ) -> None:
        """It chooses none: whether it is taken would be news of all queues."""
        body = {"workflow": flow(queue="b"), "options": {"run_id": run_id}}
        assert operator.post("/v1/runs", body).status == 201
        mine = limited("operator", "a")
        for name in (run_id, f"{run_id}-free"):
            named = {"workflow": flow(queue="a"), "options": {"run_id": name}}
            refused = mine.post("/v1/runs", named)
            assert (refused.status, refused.problem) == (422, "invalid-options")
            assert "from the gateway" in refused.json["detail"]
        made = mine.post("/v1/runs", {"workflow": flow(queue="a")})
        assert made.status == 201

    def test_hears_the_same_of_runs_that_are_not_there_and_not_its_own(
        self, limited: Limited, operator: Client, run_id: str
    ) -> None:
        operator.post("/v1/runs", {"workflow": flow(queue="b"), "options": {"run_id": run_id}})
        mine = limited("operator", "a")
        for verb, body in (("retry", {}), ("cancel", {}), ("annotate", {"data": {"a": 1}})):
            theirs = mine.post(f"/v1/runs/{run_id}/{verb}", body)
            none = mine.post(f"/v1/runs/{run_id}-none/{verb}", body)
            assert (theirs.status, theirs.problem) == (none.status, none.problem)
            assert theirs.json["detail"].replace(f"{run_id}", "") == none.json["detail"].replace(
                f"{run_id}-none", ""
            )

    def test_is_not_told_which_run_retries_its_own(
        self, house: House, limited: Limited, operator: Client, run_id: str
    ) -> None:
        body = {"workflow": flow(queue="a"), "options": {"run_id": run_id}}
        assert operator.post("/v1/runs", body).status == 201
        operator.post(f"/v1/runs/{run_id}/cancel")
        other = new_run(run_id=f"{run_id}-again", queue="b", retry_of=run_id)
        house.run(house.store.create_run(other))
        for client, named in ((limited("operator", "a"), False), (operator, True)):
            refused = client.post(f"/v1/runs/{run_id}/retry", {})
            assert (refused.status, refused.problem) == (409, "not-runnable")
            assert (f"{run_id}-again" in refused.json["detail"]) is named
