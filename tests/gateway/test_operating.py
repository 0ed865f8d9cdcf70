"""The operator verbs: what they do, and by whom the journal says it was done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenure.model.update import LeaseRequest
from tests.gateway.conftest import flow, stored
from tests.gateway.house import Client, House

ASKS = flow(plan={"mode": "manual-approve"})


def by(client: Client, run_id: str, event: str) -> Any:
    events = client.get(f"/v1/runs/{run_id}/events").json["events"]
    return next(each["data"]["by"] for each in events if each["type"] == event)


def claim(house: House, run_id: str) -> None:
    request = LeaseRequest(owner_id="worker-9", seconds=60, claim_id=f"claim-{run_id}")
    house.run(house.store.claim_run(run_id, request))  # type: ignore[attr-defined]


def test_a_queued_run_is_canceled_at_once(operator: Client, queued: str) -> None:
    answer = operator.post(f"/v1/runs/{queued}/cancel", {"reason": "not today"})
    assert (answer.status, answer.json["status"]) == (200, "canceled")
    assert answer.json["cancel_reason"] == "not today"
    assert by(operator, queued, "cancel.requested") == "operator"
    again = operator.post(f"/v1/runs/{queued}/cancel")
    assert (again.status, again.json["version"]) == (200, answer.json["version"])


def test_a_run_with_an_owner_is_asked_to_stop(operator: Client, house: House, queued: str) -> None:
    claim(house, queued)
    answer = operator.post(f"/v1/runs/{queued}/cancel").json
    assert answer["cancel_requested_at"] is not None
    assert answer["status"] == "queued"


def test_a_run_that_asks_for_approval_gets_it(operator: Client, run_id: str) -> None:
    operator.post("/v1/runs", {"workflow": ASKS, "options": {"run_id": run_id}})
    assert operator.get(f"/v1/runs/{run_id}/explain").json["reason"] == "waits_for_approval"
    answer = operator.post(f"/v1/runs/{run_id}/approve", {"note": "go"}).json
    assert (answer["approval"]["by"], answer["approval"]["note"]) == ("operator", "go")
    assert by(operator, run_id, "run.approved") == "operator"


def test_a_run_that_does_not_ask_cannot_be_approved(operator: Client, queued: str) -> None:
    answer = operator.post(f"/v1/runs/{queued}/approve")
    assert (answer.status, answer.problem) == (409, "invalid-transition")


def test_a_note_is_kept_on_an_ended_run_too(operator: Client, house: House, queued: str) -> None:
    operator.post(f"/v1/runs/{queued}/cancel")
    answer = operator.post(f"/v1/runs/{queued}/annotate", {"data": {"ticket": 42}}).json
    (note,) = answer["annotations"]
    assert (note["data"], note["by"]) == ({"ticket": 42}, "operator")
    assert stored(house, queued).status == "canceled"


def test_a_retry_is_a_new_run_for_workers(operator: Client, house: House, queued: str) -> None:
    refused = operator.post(f"/v1/runs/{queued}/retry")
    assert (refused.status, refused.problem) == (409, "not-runnable")
    operator.post(f"/v1/runs/{queued}/cancel")
    answer = operator.post(f"/v1/runs/{queued}/retry", {"limit": ["web1"]})
    assert answer.status == 201
    retry = answer.json
    assert (retry["retry_of"], retry["status"], retry["recovery"]) == (queued, "queued", "resume")
    planned = operator.get(f"/v1/runs/{retry['run_id']}").json["steps"]
    assert (retry["owner_id"], list(planned[0]["hosts"])) == (None, ["web1"])
    assert by(operator, retry["run_id"], "run.queued") == "operator"
    claim(house, retry["run_id"])


def test_one_retry_at_a_time(operator: Client, queued: str) -> None:
    operator.post(f"/v1/runs/{queued}/cancel")
    first = operator.post(f"/v1/runs/{queued}/retry").json["run_id"]
    second = operator.post(f"/v1/runs/{queued}/retry")
    assert (second.status, second.problem) == (409, "not-runnable")
    assert first in second.json["detail"]


def test_of_many_retries_at_once_one_lives(
    house: House, operator: Client, tokens: dict[str, str], queued: str
) -> None:
    operator.post(f"/v1/runs/{queued}/cancel")
    clients = [house.client(tokens["operator"]) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda client: client.post(f"/v1/runs/{queued}/retry"), clients))
    for client in clients:
        client.close()
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]
    runs = operator.get("/v1/runs?limit=1000").json["runs"]
    retries = [run for run in runs if run["retry_of"] == queued]
    assert [run["status"] for run in retries].count("queued") == 1
    assert {run["status"] for run in retries} <= {"queued", "canceled"}


def test_a_retry_of_what_is_not_there_names_the_nearest(operator: Client, queued: str) -> None:
    operator.post(f"/v1/runs/{queued}/cancel")
    answer = operator.post(f"/v1/runs/{queued}/retry", {"from_step": "helo"})
    assert (answer.status, answer.problem) == (422, "invalid-workflow")
    assert "hello" in answer.json["mistakes"][0]["hint"]


def test_reconciling_answers_with_the_runs_it_ended(
    operator: Client, house: House, run_id: str, dead_owner: str
) -> None:
    operator.post("/v1/reconcile", {"reason": "other tests leave runs in the same house"})
    options = {"run_id": run_id, "recovery": "interrupt"}
    operator.post("/v1/runs", {"workflow": flow(), "options": options})
    request = LeaseRequest(owner_id=dead_owner, seconds=60, claim_id=f"claim-{run_id}")
    house.run(house.store.claim_run(run_id, request))  # type: ignore[attr-defined]
    answer = operator.post("/v1/reconcile", {"reason": "the machine is gone"})
    assert answer.json == {"interrupted": [run_id], "expired": [], "canceled": []}
    run = operator.get(f"/v1/runs/{run_id}").json
    assert run["interrupted_reason"] == "the machine is gone (reconciled by operator)"


def test_an_unknown_run_cannot_be_steered(operator: Client) -> None:
    for verb in ("cancel", "approve", "retry", "annotate"):
        body: dict[str, Any] = {"data": {}} if verb == "annotate" else {}
        answer = operator.post(f"/v1/runs/no-such-run/{verb}", body)
        assert (answer.status, answer.problem) == (404, "run-not-found")
