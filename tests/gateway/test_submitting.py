"""New runs over HTTP: from text, from an object, once, again, and with everything wrong."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import flow, stored
from tests.gateway.house import Client, House

TEXT = """
version: v1
name: typed
steps:
  - {name: hello, action: cmd.run, args: {cmd: echo hello}}
"""
FTP = {"url": "ftp://shop.example"}
COPY = flow(
    steps=[{"name": "copy", "action": "file.copy", "args": {"src": "motd.txt", "dest": "/tmp/x"}}]
)


def test_a_workflow_as_text_becomes_a_run_for_workers(
    operator: Client, house: House, run_id: str
) -> None:
    options = {
        "run_id": run_id,
        "vars": {"release": "1.4"},
        "labels": {"team": "web"},
        "queue": "deploy",
        "priority": 7,
        "run_after": "2090-01-01T00:00:00Z",
        "timeout": 60,
    }
    answer = operator.post("/v1/runs", {"workflow": TEXT, "options": options})
    assert answer.status == 201
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    run = stored(house, run_id)
    assert (run.status, run.recovery, run.queue, run.priority) == ("queued", "resume", "deploy", 7)
    assert (run.labels, run.vars["release"], run.timeout) == ({"team": "web"}, "1.4", 60)


def test_the_journal_says_who_wanted_it(operator: Client, queued: str) -> None:
    (event,) = operator.get(f"/v1/runs/{queued}/events").json["events"]
    assert event["data"] == {"by": "operator"}


def test_a_used_run_id_is_refused_and_changes_nothing(
    operator: Client, house: House, queued: str
) -> None:
    before = stored(house, queued)
    again = operator.post("/v1/runs", {"workflow": TEXT, "options": {"run_id": queued}})
    assert (again.status, again.problem, again.json["run_id"]) == (409, "run-exists", queued)
    assert stored(house, queued) == before


def test_all_mistakes_are_told_with_their_lines(operator: Client) -> None:
    text = "version: v1\nname: bad\nsteps:\n  - {name: a, action: cmd.rum}\n  - {nam: b}\n"
    answer = operator.post("/v1/runs", {"workflow": text})
    assert (answer.status, answer.problem) == (422, "invalid-workflow")
    mistakes = answer.json["mistakes"]
    assert {mistake["line"] for mistake in mistakes} == {4, 5}
    assert "did you mean 'cmd.run'?" in [mistake["hint"] for mistake in mistakes]


def test_mistakes_of_an_object_have_a_path_and_no_line(operator: Client) -> None:
    answer = operator.post("/v1/runs", {"workflow": flow(steps=[{"name": "a", "action": "no"}])})
    (mistake,) = answer.json["mistakes"]
    assert (mistake["path"], mistake["line"]) == ("steps[0].action", None)
    step = {"name": "a", "action": "cmd.run", "args": {"cmd": "echo"}, "when": "never_given"}
    answer = operator.post("/v1/runs", {"workflow": flow(steps=[step])})
    (mistake,) = answer.json["mistakes"]
    assert "never_given" in mistake["message"]
    assert mistake["line"] is None


def test_the_same_request_again_finds_the_run_it_made(operator: Client) -> None:
    body = {"workflow": TEXT, "options": {"labels": {"n": "1"}}}
    first = operator.post("/v1/runs", body, idempotency_key="monday")
    again = operator.post("/v1/runs", body, idempotency_key="monday")
    other = operator.post("/v1/runs", body, idempotency_key="tuesday")
    assert (first.status, again.status, other.status) == (201, 201, 201)
    assert first.json["run_id"] == again.json["run_id"] != other.json["run_id"]
    assert again.json["version"] == 1


def test_a_key_that_was_used_for_something_else_is_refused(operator: Client) -> None:
    operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key="once")
    answer = operator.post("/v1/runs", {"workflow": flow()}, idempotency_key="once")
    assert (answer.status, answer.problem) == (409, "idempotency-key-reused")


def test_keys_of_different_tokens_are_different_keys(operator: Client, admin: Client) -> None:
    mine = operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shared")
    yours = admin.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shared")
    assert mine.json["run_id"] != yours.json["run_id"]


def test_a_key_stands_for_no_other_run_whatever_id_is_asked_for(
    operator: Client, run_id: str
) -> None:
    body = {"workflow": TEXT}
    named = {**body, "options": {"run_id": run_id}}
    for _ in range(2):
        refused = operator.post("/v1/runs", named, idempotency_key="either")
        assert (refused.status, refused.problem) == (422, "invalid-options")
        assert "give one of them" in refused.json["detail"]
        assert operator.get(f"/v1/runs/{run_id}").status == 404
        assert operator.post("/v1/runs", body, idempotency_key="either").status == 201


class TestARetryUnderAKey:
    @pytest.fixture
    def ended(self, operator: Client, queued: str) -> str:
        operator.post(f"/v1/runs/{queued}/cancel")
        return queued

    def test_again_it_finds_the_run_it_made(self, operator: Client, ended: str) -> None:
        path, key = f"/v1/runs/{ended}/retry", f"again {ended}"
        first = operator.post(path, {}, idempotency_key=key)
        again = operator.post(path, {}, idempotency_key=key)
        assert (first.status, again.status) == (201, 201)
        assert first.json == again.json
        assert operator.post(path, {}, idempotency_key="another").problem == "not-runnable"
        operator.post(f"/v1/runs/{first.json['run_id']}/cancel")
        assert operator.post(path, {}, idempotency_key=key).json["status"] == "canceled"

    def test_for_anything_else_the_key_is_refused(
        self, operator: Client, ended: str, run_id: str
    ) -> None:
        path, key = f"/v1/runs/{ended}/retry", f"once {ended}"
        assert operator.post(path, {}, idempotency_key=key).status == 201
        other = operator.post("/v1/runs", {"workflow": TEXT}).json["run_id"]
        operator.post(f"/v1/runs/{other}/cancel")
        for refused in (
            operator.post(path, {"approve": True}, idempotency_key=key),
            operator.post(f"/v1/runs/{other}/retry", {}, idempotency_key=key),
            operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key=key),
        ):
            assert (refused.status, refused.problem) == (409, "idempotency-key-reused")
        both = operator.post(path, {"run_id": run_id}, idempotency_key=key)
        assert (both.status, both.problem) == (422, "invalid-options")


def test_files_come_with_the_request_and_from_nowhere_else(
    operator: Client, house: House, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("opensesame")
    given = {"motd.txt": base64.b64encode(b"hello").decode()}
    made = operator.post("/v1/runs", {"workflow": COPY, "files": given})
    assert made.status == 201
    run_id = made.json["run_id"]
    assert operator.get(f"/v1/runs/{run_id}/definition").json["files"] == ["motd.txt"]
    for src in (str(tmp_path / "secret.txt"), "/etc/hostname", "../../etc/hostname"):
        step = {"name": "steal", "action": "file.copy", "args": {"src": src, "dest": "/tmp/x"}}
        answer = operator.post("/v1/runs", {"workflow": flow(steps=[step])})
        assert (answer.status, answer.problem) == (422, "invalid-workflow")
        assert "not among the files" in answer.json["detail"]
        assert b"opensesame" not in answer.body


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        ({}, 400, "malformed"),
        ({"workflow": 7}, 400, "malformed"),
        ({"workflow": TEXT, "option": {}}, 400, "malformed"),
        ({"workflow": TEXT, "options": {"priority": 101}}, 400, "malformed"),
        ({"workflow": TEXT, "options": {"secrets": {"a": "b"}}}, 400, "malformed"),
        ({"workflow": TEXT, "options": {"run_after": "2030-01-01T00:00:00"}}, 400, "malformed"),
        ({"workflow": TEXT, "options": {"run_id": "a/b"}}, 400, "malformed"),
        ({"workflow": TEXT, "files": {"a": "not base64!"}}, 400, "malformed"),
        (
            {"workflow": TEXT, "options": {"callbacks": [{"url": "ftp://x"}]}},
            422,
            "invalid-options",
        ),
        ({"workflow": TEXT, "options": {"limit": ["nobody"]}}, 422, "invalid-workflow"),
        ({"workflow": ""}, 422, "invalid-workflow"),
        ({"workflow": "\x00"}, 422, "invalid-workflow"),
    ],
)
def test_a_body_that_cannot_be_meant_is_refused(
    operator: Client, body: Any, status: int, problem: str
) -> None:
    answer = operator.post("/v1/runs", body)
    assert (answer.status, answer.problem) == (status, problem)


@pytest.mark.parametrize(
    ("url", "secret", "status"),
    [
        ("https://listed.example:443/any/path", "TENURE_HOOK_LISTED", 201),
        ("https://mine.example/", "TENURE_HOOK_LISTED", 422),
        ("http://listed.example/", "TENURE_HOOK_LISTED", 422),
        ("https://listed.example/", "TENURE_HOOK_OTHER", 422),
    ],
)
def test_a_secret_signs_for_its_origins_only(
    operator: Client, url: str, secret: str, status: int
) -> None:
    """Else an operator could have the gateway sign whatever it likes to receive."""
    target = {"url": url, "secret_env": secret}
    bodies = [
        ("invalid-options", {"workflow": flow(), "options": {"callbacks": [target]}}),
        ("invalid-workflow", {"workflow": flow(callbacks=[target])}),
    ]
    for problem, body in bodies:
        answer = operator.post("/v1/runs", body)
        assert answer.status == status, answer
        if status == 422:
            assert answer.problem == problem
            assert f"{secret} may not sign for {url[:5]}" in answer.body.decode()
            assert f"[hooks.{secret[12:]}]" in answer.body.decode()


def test_what_is_large_belongs_into_files(operator: Client) -> None:
    body = {"workflow": TEXT, "options": {"vars": {"text": "x" * (1 << 20)}}}
    answer = operator.post("/v1/runs", body)
    assert (answer.status, answer.problem) == (413, "too-large")
    assert "files" in answer.json["detail"]


def test_an_approved_run_says_who_approved_it(operator: Client) -> None:
    asks = flow(plan={"mode": "manual-approve"})
    made = operator.post("/v1/runs", {"workflow": asks, "options": {"approve": True}}).json
    assert made["approval"]["by"] == "operator"


class TestKeysOfTokens:
    """Two tokens may have one name, and know each other's keys."""

    def test_no_id_can_be_taken_before_its_key_is_used(
        self, house: House, operator: Client, admin: Client
    ) -> None:
        once = hashlib.sha256(b"operator\0wednesday").hexdigest()
        taken = f"key-{once[:32]}"
        body = {"workflow": TEXT, "options": {"run_id": taken}}
        for refused in (
            operator.post("/v1/runs", body),
            admin.post("/v1/runs", body),
        ):
            assert (refused.status, refused.problem) == (422, "invalid-options")
            assert "key-" in refused.json["detail"]
        made = operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key="wednesday")
        assert made.status == 201
        assert made.json["run_id"] != taken

    def test_a_token_of_the_same_name_has_keys_of_its_own(self, house: House) -> None:
        one, other = (house.client(house.token("operator", "twin")) for _ in range(2))
        first = one.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shared")
        second = other.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shared")
        assert (first.status, second.status) == (201, 201)
        assert first.json["run_id"] != second.json["run_id"]
        one.close()
        other.close()

    def test_the_answer_shows_the_run_as_it_is(self, operator: Client) -> None:
        first = operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shown")
        operator.post(f"/v1/runs/{first.json['run_id']}/cancel")
        again = operator.post("/v1/runs", {"workflow": TEXT}, idempotency_key="shown")
        assert (again.status, again.json["status"]) == (201, "canceled")
