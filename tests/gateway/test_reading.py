"""Lists of runs, one run, its history, its definition, why it does not move."""

from __future__ import annotations

import gzip
import json
from urllib.parse import quote

import pytest

from tenure.model.codec import full_record
from tenure.model.update import LeaseRequest
from tenure.ports.leases import WorkerInfo
from tenure.testing.factories import new_run, unique
from tests.gateway.conftest import flow, stored
from tests.gateway.house import Client, House

TYPED = """
version: v1
name: typed
steps:
  - {name: look, action: cmd.run, args: {cmd: id}}
"""


def test_a_run_is_shown_with_every_field(admin: Client, house: House, queued: str) -> None:
    shown = admin.get(f"/v1/runs/{queued}").json
    assert shown == full_record(stored(house, queued))
    assert shown["status"] == "queued"
    assert shown["steps"][0]["hosts"]["web2"]["status"] == "pending"


def test_what_did_not_change_is_not_sent_again(admin: Client, house: House, queued: str) -> None:
    first = admin.get(f"/v1/runs/{queued}")
    again = admin.get(f"/v1/runs/{queued}", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    strong = first.headers["etag"].removeprefix("W/")
    for known in (f'W/"1", {first.headers["etag"]}', strong, "*"):
        assert admin.get(f"/v1/runs/{queued}", if_none_match=known).status == 304
    assert admin.get(f"/v1/runs/{queued}", if_none_match='W/"1"').status == 200
    assert again.headers["etag"] == first.headers["etag"]
    admin.post(f"/v1/runs/{queued}/annotate", {"data": {"seen": True}})
    assert admin.get(f"/v1/runs/{queued}", if_none_match=first.headers["etag"]).status == 200


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_what_never_changes_is_made_once(admin: Client, house: House, path: str) -> None:
    plain, packed = admin.get(path), admin.get(path, accept_encoding="gzip")
    assert gzip.decompress(packed.body) == plain.body
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert plain.headers["etag"] == packed.headers["etag"]
    again = admin.get(path, if_none_match=plain.headers["etag"])
    assert (again.status, again.body, again.headers["vary"]) == (304, b"", "accept-encoding")


def test_a_renewed_lease_changes_the_tag_though_not_the_version(
    admin: Client, house: House, queued: str
) -> None:
    request = LeaseRequest(owner_id="worker-1", seconds=60, claim_id=f"c-{queued}")
    claimed = house.run(house.store.claim_run(queued, request))  # type: ignore[attr-defined]
    before = admin.get(f"/v1/runs/{queued}")
    house.run(house.store.renew_leases([claimed.lease], 90))  # type: ignore[attr-defined]
    after = admin.get(f"/v1/runs/{queued}", if_none_match=before.headers["etag"])
    assert after.status == 200
    assert after.json["version"] == before.json["version"]


@pytest.mark.parametrize(
    "run_id", ["short", "a" * 129, "-begins-badly", "sp%20ace-in-it", "%00" * 9]
)
def test_a_malformed_id_is_told_from_an_unknown_one(admin: Client, run_id: str) -> None:
    for path in ("", "/events", "/explain", "/definition", "/logs", "/logs/0/web1"):
        answer = admin.get(f"/v1/runs/{run_id}{path}")
        assert (answer.status, answer.problem) == (400, "malformed")
    assert admin.get("/v1/runs/not-there-at-all").problem == "run-not-found"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/runs/../../etc/passwd",
        "/v1/runs/..%2f..%2fetc%2fpasswd",
        "/v1/runs/%2e%2e/%2e%2e/secret",
        "/v1/runs/run-000001/logs/0/..%2f..%2f..%2fetc%2fpasswd",
        "//v1/runs",
        "/v1/runs/",
    ],
)
def test_a_path_that_climbs_leads_nowhere(admin: Client, path: str) -> None:
    answer = admin.get(path)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body


def test_runs_come_in_pages_and_each_once(operator: Client) -> None:
    name = "paged"
    for _ in range(5):
        operator.post("/v1/runs", {"workflow": flow(name=name)})
    first = operator.get(f"/v1/runs?workflow={name}&limit=3").json
    rest = operator.get(f"/v1/runs?workflow={name}&limit=3&cursor={first['cursor']}").json
    ids = [run["run_id"] for run in (*first["runs"], *rest["runs"])]
    assert len(ids) == len(set(ids)) == 5
    assert rest["cursor"] is None
    assert "steps" not in first["runs"][0]


def test_filters_are_combined(operator: Client) -> None:
    for color, queue in (("red", "a"), ("red", "b"), ("blue", "a")):
        options = {"labels": {"color": color, "kind": "filtered"}, "queue": queue}
        operator.post("/v1/runs", {"workflow": flow(), "options": options})
    found = operator.get("/v1/runs?label=kind=filtered&label=color=red&queue=a&status=queued").json
    assert [run["labels"]["color"] for run in found["runs"]] == ["red"]
    created = found["runs"][0]["created_at"]
    since = operator.get(f"/v1/runs?label=kind=filtered&created_from={quote(created)}").json
    assert len(since["runs"]) == 3
    before = operator.get(f"/v1/runs?label=kind=filtered&created_to={quote(created)}").json
    assert before["runs"] == []
    assert (
        operator.get("/v1/runs?label=kind=filtered&status=failed&status=running").json["runs"] == []
    )


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=ten", "limit=1&limit=2", "status=lost", "label=nothing",
        "created_from=2026-01-01T00:00:00", "created_from=yesterday", "cursor=abc", "cursor=",
        "unknown=1", "held=perhaps", "%ff=1", "a", "queue=" + "q" * 300,
        "&".join(f"label=k{n}=v" for n in range(200)),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_meant_is_refused(admin: Client, query: str) -> None:
    answer = admin.get(f"/v1/runs?{query}")
    assert (answer.status, answer.problem) == (400, "malformed")


def test_the_journal_can_be_read_from_any_place(operator: Client, queued: str) -> None:
    operator.post(f"/v1/runs/{queued}/annotate", {"data": {"note": 1}})
    operator.post(f"/v1/runs/{queued}/cancel")
    everything = operator.get(f"/v1/runs/{queued}/events").json
    types = [event["type"] for event in everything["events"]]
    assert types == ["run.queued", "run.annotated", "run.canceled", "cancel.requested"]
    assert everything["after"] == "3.1"
    assert operator.get(f"/v1/runs/{queued}/events?after=2").json["events"][0]["version"] == 3
    assert len(operator.get(f"/v1/runs/{queued}/events?after=3.0").json["events"]) == 1
    end = operator.get(f"/v1/runs/{queued}/events?after=3.1").json
    assert end == {"events": [], "after": "3.1"}


def test_the_feed_of_all_changes_goes_on_where_it_ended(operator: Client, run_id: str) -> None:
    now = operator.get("/v1/events?after=now").json["after"]
    operator.post("/v1/runs", {"workflow": flow(), "options": {"run_id": run_id}})
    found = operator.get(f"/v1/events?after={now}").json
    assert run_id in [event["run_id"] for event in found["events"]]
    operator.post(f"/v1/runs/{run_id}/cancel")
    more = operator.get(f"/v1/events?after={found['after']}").json
    assert {event["type"] for event in more["events"]} == {"run.canceled", "cancel.requested"}
    assert operator.get("/v1/events?after=elsewhere").problem == "malformed"


def test_a_run_says_what_it_executes(operator: Client, run_id: str) -> None:
    text = "# as its author wrote it\n" + TYPED
    body = {"workflow": text, "options": {"run_id": run_id, "limit": []}}
    assert operator.post("/v1/runs", body).status == 201
    shown = operator.get(f"/v1/runs/{run_id}/definition").json
    assert shown["workflow"] == text
    assert json.loads(shown["stored"])["workflow"] == text


def test_credentials_in_what_a_run_executes_are_for_workers(
    house: House, operator: Client, tokens: dict[str, str], run_id: str
) -> None:
    target = {"url": "https://example.com/a?b=hush", "headers": {"X-Key": "hush"}}
    body = {"workflow": flow(callbacks=[target]), "options": {"run_id": run_id}}
    assert operator.post("/v1/runs", body).status == 201
    for role in ("viewer", "operator", "worker", "admin"):
        client = house.client(tokens[role])
        shown = client.get(f"/v1/runs/{run_id}/definition")
        client.close()
        assert (b"hush" in shown.body) == (role in ("worker", "admin"))
        assert json.loads(shown.json["stored"])["workflow"] == shown.json["workflow"]


def test_what_nobody_here_understands_is_for_workers(
    house: House, operator: Client, admin: Client
) -> None:
    for text in ("rubbish", json.dumps({"workflow": "a: [b"})):
        new = new_run(run_id=unique("strange"), definition=text)
        house.run(house.store.create_run(new))
        path = f"/v1/runs/{new.snapshot.run_id}/definition"
        assert operator.get(path).problem == "forbidden"
        assert admin.get(path).json["stored"] == text


def test_a_run_says_why_it_is_not_moving(operator: Client, run_id: str) -> None:
    options = {"run_id": run_id, "queue": "deserted"}
    assert operator.post("/v1/runs", {"workflow": flow(), "options": options}).status == 201
    said = operator.get(f"/v1/runs/{run_id}/explain").json
    assert said["reason"] == "waits_for_a_worker"
    assert "no worker serves queue 'deserted'" in said["text"]


def test_what_could_be_claimed_is_listed_by_priority(operator: Client) -> None:
    for priority in (0, 9, 5):
        options = {"queue": "ranked", "priority": priority}
        operator.post("/v1/runs", {"workflow": flow(), "options": options})
    found = operator.get("/v1/runnable?queue=ranked").json
    assert [run["priority"] for run in found["runs"]] == [9, 5, 0]


def test_workers_are_listed_with_what_they_hold(admin: Client, house: House, queued: str) -> None:
    owner = f"worker-of-{queued}"
    request = LeaseRequest(owner_id=owner, seconds=60, claim_id=owner)
    house.run(house.store.claim_run(queued, request))  # type: ignore[attr-defined]
    house.run(house.store.heartbeat(WorkerInfo(owner_id=owner), 60))  # type: ignore[attr-defined]
    listed = {worker["owner_id"]: worker for worker in admin.get("/v1/workers").json["workers"]}
    assert listed[owner]["runs"] == [queued]


def test_larger_answers_are_compressed_for_who_wants_that(admin: Client, queued: str) -> None:
    plain = admin.get(f"/v1/runs/{queued}")
    packed = admin.get(f"/v1/runs/{queued}", accept_encoding="br;q=1, gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    refused = admin.get(f"/v1/runs/{queued}", accept_encoding="gzip;q=0")
    assert refused.body == plain.body


def test_asking_for_the_head_gives_no_body(admin: Client, queued: str) -> None:
    head = admin("HEAD", f"/v1/runs/{queued}")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) == len(admin.get(f"/v1/runs/{queued}").body)


def test_credentials_of_callbacks_are_not_shown(operator: Client, run_id: str) -> None:
    target = {
        "url": "https://shop.example/hook?key=opensesame",
        "headers": {"X-Key": "opensesame"},
    }
    body = {"workflow": flow(), "options": {"run_id": run_id, "callbacks": [target]}}
    made = operator.post("/v1/runs", body)
    assert made.status == 201
    for answer in (made, operator.get(f"/v1/runs/{run_id}"), operator.get("/v1/callbacks")):
        assert b"opensesame" not in answer.body
    shown = operator.get(f"/v1/runs/{run_id}").json
    assert shown["callbacks"][0]["headers"] == {"X-Key": "***"}
