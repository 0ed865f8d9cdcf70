"""``tenure callbacks``: what became of them, sending them again, and one for trying."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any

import pytest
from standardwebhooks import Webhook

import tenure
from tenure.model.compose import new_run
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.system import new_update_id
from tests.cli.conftest import Answer, Cli
from tests.cli.hooks import SECRET, Hook


def run(cli: Cli, hook: Hook, run_id: str = "run-00001", **target: Any) -> Answer:
    return cli.call("run", cli.workflow(hook.workflow(**target)), "-q", "--run-id", run_id)


def callbacks(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.call("callbacks", "list", "--json", *arguments).json[
        "callbacks"
    ]
    return found


# -- list -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_list_shows_the_newest_first_with_how_each_stands(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run(cli, hook)
    hook.status = 400
    run(cli, hook, "run-00002")
    found = callbacks(cli)
    assert [(each["run_id"], each["type"], each["state"]) for each in found] == [
        ("run-00002", "run.success", "dead"),
        ("run-00002", "run.running", "dead"),
        ("run-00002", "run.queued", "dead"),
        ("run-00001", "run.success", "delivered"),
        ("run-00001", "run.running", "delivered"),
        ("run-00001", "run.queued", "delivered"),
    ]
    assert found[0]["last_error"] == "answered 400"
    assert found[0]["attempts"] == 1
    shown = cli.call("callbacks", "list").out
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["ID", "STATE", "EVENT", "TRIED", "WHEN", "RUN", "TO"]
    assert lines[1][:5] == [found[0]["id"], "✗", "dead", "run.success", "1"]
    assert lines[4][:5] == [found[3]["id"], "✓", "delivered", "run.success", "1"]
    assert lines[4][-2:] == ["run-00001", hook.url]


@pytest.mark.slow
def test_list_can_be_narrowed_to_a_state_and_a_run(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    hook.status = 400
    run(cli, hook, "run-00002")
    assert {each["run_id"] for each in callbacks(cli, "--state", "dead")} == {"run-00002"}
    assert {each["run_id"] for each in callbacks(cli, "--run", "run-00001")} == {"run-00001"}
    assert {each["run_id"] for each in callbacks(cli, "--run", "latest")} == {"run-00002"}
    assert callbacks(cli, "--run", "latest", "--state", "delivered") == []
    titles = cli.call("callbacks", "list", "--run", "latest").out.splitlines()[0].split()
    assert "RUN" not in titles  # all lines would say the same


@pytest.mark.slow
def test_one_that_waits_says_when_it_is_tried_again(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_CALLBACK_ATTEMPTS", "8")
    monkeypatch.setenv("TENURE_CALLBACK_DELAY", "1h")
    hook.status = 503
    run(cli, hook)
    newest, _, oldest = callbacks(cli, "--state", "waiting")
    assert (newest["attempts"], oldest["attempts"]) == (0, 1)
    assert oldest["due_at"] > newest["due_at"]
    shown = cli.call("callbacks", "list").out.splitlines()
    assert re.search(r" in (4[789]m|5\dm|1h) ", shown[3])  # chance takes up to a fifth away
    assert " due " in shown[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["list"], ["show", "x"], ["redeliver", "x"], ["redeliver", "--dead"]],
    ids=" ".join,
)
def test_a_store_without_outbox_says_so(cli: Cli, arguments: list[str]) -> None:
    (cli.home / "runs").mkdir()
    refused = cli.call("callbacks", *arguments, "--store", f"file://{cli.home}/runs")
    assert refused.code == 7
    assert "FileStore keeps no callbacks: they are sent from memory" in refused.err


# -- show -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_show_has_what_the_receiver_got(cli: Cli, hook: Hook) -> None:
    run(cli, hook, events=["step"], secret_env="TENURE_HOOK_SHOP")
    got = hook.received[-1]
    found = cli.call("callbacks", "show", got.id, "--json").json
    assert found["payload"] == got.said
    assert found["target"]["secret_env"] == "TENURE_HOOK_SHOP"
    shown = cli.call("callbacks", "show", got.id).out
    assert "✓ delivered  step.success  deploy" in shown
    assert "signed    with TENURE_HOOK_SHOP" in shown
    assert f'"run_id": "{got.said["run_id"]}"' in shown


@pytest.mark.slow
def test_an_unknown_callback_is_not_found(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    refused = cli.call("callbacks", "show", "nonsense")
    assert refused.code == 5
    assert "no callback delivery 'nonsense'" in refused.err
    assert "tenure callbacks list" in refused.err


@pytest.mark.slow
def test_nothing_secret_is_shown_anywhere(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    headers = {"X-Key": "swordfish"}
    run(cli, hook, url=f"{hook.url}?token=hunter22", headers=headers, secret_env="TENURE_HOOK_SHOP")
    got = hook.received[0]
    assert got.headers["x-key"] == "swordfish"
    said = ""
    of_callbacks = (["list"], ["show", got.id], ["redeliver", got.id], ["redeliver", "--dead"])
    for arguments in (["status", "latest"], *(["callbacks", *each] for each in of_callbacks)):
        for style in ([], ["--json"]):
            answer = cli.call(*arguments, *style)
            said += answer.out + answer.err
    assert "X-Key" in said
    for secret in ("swordfish", "hunter22", SECRET, SECRET[6:]):
        assert secret not in said


# -- redeliver ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dead_letter_is_sent_again_under_its_id_and_marked(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_HOOKS", f"SHOP={hook.url.removesuffix('/hook')}")
    hook.status = 400
    run(cli, hook, secret_env="TENURE_HOOK_SHOP")
    first = hook.received[0]
    assert cli.call("status", "latest", "--json").json["callback_error"]["error"] == "answered 400"
    hook.status = 204
    again = cli.call("callbacks", "redeliver", "--dead", "--run", "latest")
    assert again.code == 0
    assert f"✓ delivered  {first.id}  run.queued to {hook.url}" in again.out
    assert again.err == ""
    second = hook.received[3]
    assert (second.id, second.body) == (first.id, first.body)
    assert "tenure-redelivery" not in first.headers
    assert second.headers["tenure-redelivery"] == "true"
    assert cli.call("status", "latest", "--json").json["callback_error"] is None
    assert {each["state"] for each in callbacks(cli)} == {"delivered"}
    nothing = cli.call("callbacks", "redeliver", "--dead")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to do" in nothing.err


async def queue_run(callback: str, run_id: str = "run-00001") -> None:
    """By somebody who then died: nothing of it was sent."""
    target = CallbackTarget(name="callback-1", url=callback)
    planned = RunSnapshot(run_id=run_id, workflow_name="deploy", callbacks=(target,))
    async with tenure.open_store("sqlite:///runs.db") as store:
        await store.create_run(new_run(planned, new_update_id(), iter(new_update_id, "")))


@pytest.mark.slow
def test_nothing_is_sent_that_nobody_asked_for(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that hangs is neither waited for nor costs an attempt."""
    monkeypatch.setenv("TENURE_CALLBACK_FLUSH", "1h")
    monkeypatch.setenv("TENURE_CALLBACK_TIMEOUT", "1h")
    monkeypatch.setenv("TENURE_STORE", "sqlite:///runs.db")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for run_id, to in enumerate((hook.url, hook.url, url)):
            asyncio.run(queue_run(to, f"run-{run_id:05}"))
        *others, oldest = callbacks(cli)
        assert cli.call("callbacks", "redeliver", oldest["id"]).code == 0
    assert [each.id for each in hook.received] == [oldest["id"]]
    assert "tenure-redelivery" not in hook.received[0].headers, "it was sent for the first time"
    assert callbacks(cli, "--state", "waiting") == others


@pytest.mark.slow
def test_they_arrive_in_their_order_whatever_order_was_typed(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook, events=["run", "step"])
    before = hook.types
    hook.status = 204
    ids = [each.id for each in hook.received]
    assert cli.call("callbacks", "redeliver", *reversed(ids), *ids).code == 0
    assert hook.types == before + before


@pytest.mark.slow
def test_nothing_is_sent_if_one_of_them_is_unknown(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook)
    refused = cli.call("callbacks", "redeliver", hook.received[0].id, "nonsense")
    assert refused.code == 5
    assert len(hook.received) == 3
    assert len(callbacks(cli, "--state", "dead")) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "or --dead"),
        (["x", "--dead"], "or --dead"),
        (["--run", "latest"], "--run goes with --dead"),
    ],
)
def test_what_to_redeliver_must_be_said_once(cli: Cli, arguments: list[str], named: str) -> None:
    refused = cli.call("callbacks", "redeliver", *arguments)
    assert refused.code == 2
    assert named in refused.err


# -- completion -----------------------------------------------------------------------------------


def test_it_is_signed_like_any_other_and_shown_as_sent(cli: Cli, hook: Hook) -> None:
    shown = cli.call("callbacks", "test", hook.url, "--secret-env", "TENURE_HOOK_SHOP")
    assert shown.code == 0
    assert "✓ taken" in shown.out
    [got] = hook.received
    assert Webhook(SECRET).verify(got.body, got.headers) == got.said
    assert got.said["type"] == "run.success"
    assert got.said["workflow_name"] == "tenure-callbacks-test"
    assert f"POST {hook.url}" in shown.out
    for name, value in got.headers.items():
        assert f"  {name}: {value}\n" in shown.out
    assert got.body.decode() in shown.out
    assert "204 No Content" in shown.out
    assert SECRET[6:] not in shown.out + shown.err


@pytest.mark.parametrize(
    ("status", "outcome", "said"),
    [
        (400, "dead", "a callback would be a dead letter at once"),
        (301, "dead", "a callback would be a dead letter at once"),
        (
            503,
            "retried",
            "a callback would be tried again after 5.0s, 8 times in all within 2h 28m",
        ),
    ],
)
def test_what_tenure_would_do_about_an_answer(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch, status: int, outcome: str, said: str
) -> None:
    monkeypatch.delenv("TENURE_CALLBACK_ATTEMPTS")
    hook.status = status
    shown = cli.call("callbacks", "test", hook.url)
    assert shown.code == 1
    assert f"✗ not taken: answered {status}" in shown.out
    assert said in shown.out
    facts = cli.call("callbacks", "test", hook.url, "--json")
    assert (facts.code, facts.json["outcome"], facts.json["status"]) == (1, outcome, status)


def test_no_answer_is_the_networks_fault(cli: Cli, hook: Hook) -> None:
    hook.status = 0
    assert cli.call("callbacks", "test", hook.url).code == 6
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    refused = cli.call("callbacks", "test", url)
    assert refused.code == 6
    assert "Connection refused" in refused.out
    assert "webhook-id" not in refused.out  # nothing was sent


def test_the_guard_stands_unless_it_is_lifted(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_CALLBACK_ALLOW_PRIVATE")
    refused = cli.call("callbacks", "test", hook.url)
    assert refused.code == 7
    assert "leads to a loopback address" in refused.out
    assert hook.received == []
    assert cli.call("callbacks", "test", hook.url, "--allow-private").code == 0


def test_a_variable_that_holds_no_secret_is_the_senders_fault(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_HOOK_SHOP", "whsec_short")
    refused = cli.call("callbacks", "test", hook.url, "--secret-env", "TENURE_HOOK_SHOP")
    assert refused.code == 7
    assert "TENURE_HOOK_SHOP holds no signing secret" in refused.out
    assert hook.received == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://ada:opensesame@example.com/"], "give it in a header, Authorization"),
        (["http://example.com:x/"], "url: has a port that is no number from 1 to 65535"),
        (["http://example.com", "--secret-env", "SHOP"], "name it TENURE_HOOK_SHOP"),
    ],
)
def test_what_cannot_be_a_target_is_wrong_usage(cli: Cli, arguments: list[str], said: str) -> None:
    refused = cli.call("callbacks", "test", *arguments)
    assert refused.code == 2
    assert said in refused.err
    assert "opensesame" not in refused.err + refused.out
