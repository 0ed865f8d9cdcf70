"""``tenure callbacks``: what became of them, and sending them again."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any

import click
import pytest

import tenure
from tenure.cli.commands.callbacks import callbacks_show
from tenure.cli.completion import callback_ids
from tenure.model.compose import new_run
from tenure.model.snapshot import CallbackTarget, RunSnapshot
from tenure.system import new_update_id
from tests.cli.conftest import Answer, Cli
from tests.cli.flows import GREET
from tests.cli.hooks import SECRET, Hook

pytestmark = pytest.mark.slow


def run(cli: Cli, hook: Hook, run_id: str = "run-00001", **target: Any) -> Answer:
    return cli.call("run", cli.workflow(hook.workflow(**target)), "-q", "--run-id", run_id)


def callbacks(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.call("callbacks", "list", "--json", *arguments).json[
        "callbacks"
    ]
    return found


# -- list -----------------------------------------------------------------------------------------


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
        ("run-00001", "run.success", "delivered"),
        ("run-00001", "run.running", "delivered"),
    ]
    assert found[0]["last_error"] == "answered 400"
    assert found[0]["attempts"] == 1
    shown = cli.call("callbacks", "list").out
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["ID", "STATE", "EVENT", "TRIED", "WHEN", "RUN", "TO"]
    assert lines[1][:5] == [found[0]["id"], "✗", "dead", "run.success", "1"]
    assert lines[3][:5] == [found[2]["id"], "✓", "delivered", "run.success", "1"]
    assert lines[3][-2:] == ["run-00001", hook.url]


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


def test_list_goes_on_where_the_last_page_ended(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    first = cli.call("callbacks", "list", "--limit", "1")
    cursor = first.err.rpartition(" ")[2].strip()
    rest = callbacks(cli, "--cursor", cursor)
    assert [each["type"] for each in rest] == ["run.running"]
    refused = cli.call("callbacks", "list", "--cursor", "nonsense")
    assert refused.code == 2


def test_one_that_waits_says_when_it_is_tried_again(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_CALLBACK_ATTEMPTS", "8")
    monkeypatch.setenv("TENURE_CALLBACK_DELAY", "1h")
    hook.status = 503
    run(cli, hook)
    newest, oldest = callbacks(cli, "--state", "waiting")
    assert (newest["attempts"], oldest["attempts"]) == (0, 1)
    assert oldest["due_at"] > newest["due_at"]
    shown = cli.call("callbacks", "list").out.splitlines()
    assert re.search(r" in (4[789]m|5\dm|1h) ", shown[2])  # chance takes up to a fifth away
    assert " due " in shown[1]


def test_a_narrow_terminal_still_shows_ids_states_and_events(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(cli, hook)
    monkeypatch.setenv("COLUMNS", "40")
    for line, each in zip(
        cli.call("callbacks", "list").out.splitlines()[1:], callbacks(cli), strict=True
    ):
        assert line.startswith(f"{each['id']}  ✓ delivered  {each['type']}")


def test_there_is_nothing_to_list(cli: Cli) -> None:
    nothing = cli.call("callbacks", "list")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no callbacks in ~/.local/share/tenure/runs.db" in nothing.err
    cli.call("run", cli.workflow(GREET), "-q")
    assert callbacks(cli) == []
    assert "no such callback" in cli.call("callbacks", "list", "--state", "dead").err


def test_an_unknown_run_is_not_taken_for_one_without_callbacks(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    assert cli.call("callbacks", "list", "--run", "no-such-run").code == 5


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


@pytest.mark.parametrize("arguments", [["list"], ["show", "x"], ["redeliver", "x"]], ids=" ".join)
def test_a_store_that_is_not_there_is_no_empty_one(cli: Cli, arguments: list[str]) -> None:
    assert cli.call("callbacks", *arguments, "--store", "sqlite:///none.db").code == 6


# -- show -----------------------------------------------------------------------------------------


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


def test_show_says_why_it_was_given_up(cli: Cli, hook: Hook) -> None:
    hook.status = 410
    run(cli, hook)
    shown = cli.call("callbacks", "show", hook.received[0].id).out
    assert "✗ dead  run.running  deploy" in shown
    assert "error     answered 410" in shown
    assert "signed    no" in shown


def test_an_unknown_callback_is_not_found(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    refused = cli.call("callbacks", "show", "nonsense")
    assert refused.code == 5
    assert "no callback delivery 'nonsense'" in refused.err
    assert "tenure callbacks list" in refused.err


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


def test_a_dead_letter_is_sent_again_under_its_id_and_marked(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook, secret_env="TENURE_HOOK_SHOP")
    first = hook.received[0]
    assert cli.call("status", "latest", "--json").json["callback_error"]["error"] == "answered 400"
    hook.status = 204
    again = cli.call("callbacks", "redeliver", "--dead", "--run", "latest")
    assert again.code == 0
    assert f"✓ delivered  {first.id}  run.running to {hook.url}" in again.out
    assert again.err == ""
    second = hook.received[2]
    assert (second.id, second.body) == (first.id, first.body)
    assert "tenure-redelivery" not in first.headers
    assert second.headers["tenure-redelivery"] == "true"
    assert cli.call("status", "latest", "--json").json["callback_error"] is None
    assert {each["state"] for each in callbacks(cli)} == {"delivered"}
    nothing = cli.call("callbacks", "redeliver", "--dead")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to do" in nothing.err


def test_what_still_does_not_arrive_is_told_with_its_reason(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook)
    again = cli.call("callbacks", "redeliver", hook.received[0].id)
    assert again.code == 1
    assert "✗ dead" in again.out
    assert "answered 400" in again.out
    assert again.err == ""  # said once is enough
    facts = cli.call("callbacks", "redeliver", "--dead", "--json")
    assert facts.code == 1
    assert (facts.json["dead"], facts.json["delivered"], facts.json["waiting"]) == (2, 0, 0)


def test_what_is_to_be_tried_later_is_told_with_its_time(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.status = 400
    run(cli, hook)
    monkeypatch.setenv("TENURE_CALLBACK_ATTEMPTS", "8")
    monkeypatch.setenv("TENURE_CALLBACK_DELAY", "1h")
    hook.status = 503
    ids = [each.id for each in hook.received]
    again = cli.call("callbacks", "redeliver", *ids)
    assert again.code == 1
    assert again.out.count("◦ waiting") == 2
    assert "answered 503; next attempt in" in again.out
    assert "behind another one" in again.out
    hook.status = 204
    sooner = cli.call("callbacks", "redeliver", *ids)  # keeps its time
    assert sooner.code == 1
    assert len(hook.received) == 3


async def queue_run(callback: str, run_id: str = "run-00001") -> None:
    """By somebody who then died: nothing of it was sent."""
    target = CallbackTarget(name="callback-1", url=callback)
    planned = RunSnapshot(run_id=run_id, workflow_name="deploy", callbacks=(target,))
    async with tenure.open_store("sqlite:///runs.db") as store:
        await store.create_run(new_run(planned, new_update_id(), iter(new_update_id, "")))


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


def test_one_that_has_arrived_can_be_sent_again_too(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    assert cli.call("callbacks", "redeliver", hook.received[1].id).code == 0
    assert hook.types == ["run.running", "run.success", "run.success"]


def test_they_arrive_in_their_order_whatever_order_was_typed(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook, events=["run", "step"])
    before = hook.types
    hook.status = 204
    ids = [each.id for each in hook.received]
    assert cli.call("callbacks", "redeliver", *reversed(ids), *ids).code == 0
    assert hook.types == before + before


def test_only_the_run_that_was_named_is_redelivered(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook)
    run(cli, hook, "run-00002")
    hook.status = 204
    assert cli.call("callbacks", "redeliver", "--dead", "--run", "run-00001").code == 0
    assert {each["run_id"] for each in callbacks(cli, "--state", "dead")} == {"run-00002"}


def test_nothing_is_sent_if_one_of_them_is_unknown(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    run(cli, hook)
    refused = cli.call("callbacks", "redeliver", hook.received[0].id, "nonsense")
    assert refused.code == 5
    assert len(hook.received) == 2
    assert len(callbacks(cli, "--state", "dead")) == 2


@pytest.mark.slow
def test_many_are_summed_up(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    for number in range(12):
        run(cli, hook, f"run-{number:05}")
    again = cli.call("callbacks", "redeliver", "--dead").out
    assert "24 callbacks in all: 24 dead" in again
    assert again.count("answered 400") == 20


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "or --dead"),
        (["x", "--dead"], "or --dead"),
        (["x", "--run", "latest"], "--run goes with --dead"),
        (["--run", "latest"], "--run goes with --dead"),
    ],
)
def test_what_to_redeliver_must_be_said_once(cli: Cli, arguments: list[str], named: str) -> None:
    refused = cli.call("callbacks", "redeliver", *arguments)
    assert refused.code == 2
    assert named in refused.err


# -- completion -----------------------------------------------------------------------------------


def test_a_shell_is_offered_the_ids_there_are(cli: Cli, hook: Hook) -> None:
    run(cli, hook)
    context = click.Context(callbacks_show)
    offered = {item.value: item.help for item in callback_ids(context, "")}
    newest = callbacks(cli)[0]["id"]
    assert offered[newest] == "delivered run.success of run-00001"
    assert set(offered) == {each.id for each in hook.received}
    assert [item.value for item in callback_ids(context, newest)] == [newest]
    assert callback_ids(context, "nonsense") == []
