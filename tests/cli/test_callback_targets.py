"""Callbacks of the commands that execute and change runs, and the settings behind them."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

import tenure
from tenure.cli.context import callback_settings
from tenure.config import load_settings
from tests.cli.conftest import Cli, finish, read_until
from tests.cli.flows import GREET
from tests.cli.hooks import Hook

pytestmark = pytest.mark.slow


def settings(cli: Cli, text: str) -> None:
    (cli.folder / "tenure.toml").write_text(text)


# -- who is told ----------------------------------------------------------------------------------


def test_an_address_on_the_command_line_is_told_of_the_run(cli: Cli, hook: Hook) -> None:
    other = hook.url + "/other"
    answer = cli.call("run", cli.workflow(GREET), "--callback", hook.url, "--callback", other)
    assert answer.code == 0
    assert sorted(hook.types) == sorted(["run.queued", "run.running", "run.success"] * 2)
    assert "callback" not in answer.err  # all went well: not a word


def test_targets_of_the_settings_are_told_of_every_run(cli: Cli, hook: Hook) -> None:
    table = f'[[callbacks]]\nurl = "{hook.url}"\nevents = ["step"]\nsecret_env = "TENURE_HOOK_SHOP"'
    settings(cli, table + '\nheaders = {X-Team = "web"}')
    cli.call("run", cli.workflow(GREET), "-q", "--callback", hook.url)
    by_signature = {"webhook-signature" in each.headers: each for each in hook.received}
    assert hook.types.count("step.success") == 2
    assert by_signature[True].said["step"] is not None
    assert by_signature[True].headers["x-team"] == "web"
    assert by_signature[False].said["step"] is None
    names = [each["name"] for each in cli.call("status", "latest", "--json").json["callbacks"]]
    assert names == ["callback-1", "callback-2"]


def test_the_record_is_shown_without_credentials_of_its_callbacks(cli: Cli, hook: Hook) -> None:
    table = f'[[callbacks]]\nurl = "{hook.url}?token=opensesame"\n'
    settings(cli, table + 'headers = {Authorization = "Bearer opensesame"}')
    done = cli.call("run", cli.workflow(GREET), "--json")
    assert hook.received[-1].headers["authorization"] == "Bearer opensesame"
    (shown,) = cli.call("status", "latest", "--json").json["callbacks"]
    assert shown["headers"] == {"Authorization": "***"}
    assert shown["url"] == f"{hook.url}?***"
    assert "opensesame" not in done.out + done.err


@pytest.mark.parametrize("source", ["command line", "workflow", "settings"])
def test_a_password_in_an_address_is_refused_wherever_it_stands(cli: Cli, source: str) -> None:
    """Addresses are shown to people, and kept; a header's value is not shown."""
    url, flow, further = "https://ada:opensesame@shop.example/hook", GREET, []
    if source == "command line":
        further = ["--callback", url]
    elif source == "workflow":
        flow += f"callbacks: [{{url: '{url}'}}]\n"
    else:
        settings(cli, f'[[callbacks]]\nurl = "{url}"\n')
    refused = cli.call("run", cli.workflow(flow), *further)
    assert refused.code == 2
    assert "url: holds a user name or a password" in refused.err
    assert "opensesame" not in refused.err + refused.out


def test_only_the_settings_reach_inside_unless_it_is_allowed(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_CALLBACK_ALLOW_PRIVATE")
    settings(cli, f'[[callbacks]]\nurl = "{hook.url}"\nheaders = {{X-From = "settings"}}\n')
    cli.call("run", cli.workflow(GREET), "--callback", hook.url)
    states = [each["state"] for each in cli.call("callbacks", "list", "--json").json["callbacks"]]
    assert sorted(states) == ["dead"] * (len(states) // 2) + ["delivered"] * (len(states) // 2)
    assert {got.headers["x-from"] for got in hook.received} == {"settings"}


@pytest.mark.slow
def test_reconcile_tells_of_the_runs_it_ends(cli: Cli, hook: Hook) -> None:
    hold = "echo holding; for n in $(seq 600); do sleep 0.05; done"
    run = cli.start("run", cli.workflow(hook.workflow(cmd=hold)))
    read_until(run, "holding")
    while not cli.call("callbacks", "list", "--state", "delivered", "--json").json["callbacks"]:
        pass  # what it still held when it died would hold up the rest for half a minute
    run.kill()
    run.wait()
    assert cli.call("reconcile").code == 0
    assert hook.types == ["run.queued", "run.running", "run.interrupted"]
    assert hook.received[-1].said["error"]["kind"] == "interrupted"


# -- how they are sent ----------------------------------------------------------------------------


def test_every_setting_of_callbacks_reaches_the_one_who_sends(tmp_path: Path) -> None:
    given = load_settings(
        {
            "store": "memory:",
            "callbacks": [{"url": "https://example.com/"}],
            "callback_attempts": 3,
            "callback_delay": "2s",
            "callback_backoff": 5,
            "callback_max_delay": "7m",
            "callback_timeout": "11s",
            "callback_allow_private": True,
            "callback_flush": "13s",
        },
        environ={},
        folder=tmp_path,
    )
    assert callback_settings(given) == tenure.CallbackSettings(
        targets=(tenure.CallbackSpec(url="https://example.com/"),),
        attempts=3,
        delay=2,
        backoff=5,
        max_delay=420,
        timeout=11,
        allow_private=True,
        flush=13,
    )


# -- what is left ---------------------------------------------------------------------------------


def test_the_end_of_a_run_says_what_was_given_up(cli: Cli, hook: Hook) -> None:
    hook.status = 400
    for style in ([], ["--json"], ["-q"]):
        answer = cli.call("run", cli.workflow(hook.workflow()), *style)
        assert answer.code == 0
        last = answer.err.splitlines()[-1]
        assert last.startswith("3 callbacks could not be delivered; tenure callbacks list --run ")
        listed = cli.call("callbacks", "list", "--run", last.split()[-1], "--json")
        assert len(listed.json["callbacks"]) == 3


def test_a_store_without_outbox_sends_what_it_can(cli: Cli, hook: Hook) -> None:
    store = ("--store", f"file://{cli.home}/runs")
    answer = cli.call("run", cli.workflow(hook.workflow()), *store)
    assert hook.types == ["run.queued", "run.running", "run.success"]
    assert answer.err == ""
    hook.status = 400
    answer = cli.call("run", cli.workflow(hook.workflow()), *store, "--run-id", "run-00002")
    assert answer.code == 0
    assert "given up" in answer.err
    assert cli.call("status", "run-00002", "--json", *store).json["callback_error"] is not None


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_callbacks_and_not_the_run(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_CALLBACK_FLUSH", "1h")
    monkeypatch.setenv("TENURE_CALLBACK_TIMEOUT", "1h")
    monkeypatch.setenv("TENURE_CALLBACK_ATTEMPTS", "2")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes a request and never answers
        hook.port = silent.getsockname()[1]
        run = cli.start("run", cli.workflow(hook.workflow()))
        assert run.stderr is not None
        assert "callbacks are being sent; Ctrl-C ends the wait" in run.stderr.readline()
        run.send_signal(signal.SIGINT)
        ended = finish(run)
    assert ended.code == 0
    assert "✓ success" in ended.out
    assert ended.err.startswith("3 callbacks wait in the outbox")
    listed = cli.call("callbacks", "list", "--json").json["callbacks"]
    assert listed[-1]["last_error"] == "stopped while sending; the target may have got it"


# -- doctor ---------------------------------------------------------------------------------------


def test_doctor_shows_the_targets_of_the_settings_without_their_secrets(
    cli: Cli, hook: Hook
) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    table = f'[[callbacks]]\nurl = "{hook.url}?token=opensesame"\nsecret_env = "TENURE_HOOK_SHOP"'
    settings(cli, table + '\nheaders = {X-Key = "swordfish"}')
    shown = cli.call("doctor")
    assert shown.code == 0
    assert "/hook?***  run; signed with TENURE_HOOK_SHOP" in shown.out
    assert "outbox      yes" in shown.out
    facts = cli.call("doctor", "--json")
    assert facts.json["callbacks"][0]["headers"] == {"X-Key": "***"}
    assert facts.json["store"]["outbox"] is True
    for secret in ("opensesame", "swordfish"):
        assert secret not in shown.out + facts.out


# -- what is signed for which receiver -------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_signs_for_listed_origins_only(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submitters choose secret and URL: without a list they could have anything signed."""
    file = cli.workflow(hook.workflow(secret_env="TENURE_HOOK_SHOP"))
    monkeypatch.setenv("TENURE_HOOKS", "SHOP=https://shop.example")
    cli.start("worker")
    refused = cli.call("submit", file, "--wait", "--json")
    assert refused.code == 0, refused.err
    shown = cli.call("status", "latest", "--json").json["callback_error"]
    assert "TENURE_HOOK_SHOP may not sign for http://127.0.0.1" in shown["error"]
    assert "[hooks.SHOP]" in shown["error"]
    again = cli.call("callbacks", "redeliver", "--dead", "--run", "latest")
    assert again.code != 0  # the list holds for what an operator's run wants sent again, too
    assert hook.received == []
    monkeypatch.setenv("TENURE_HOOKS", f"SHOP=http://127.0.0.1:{hook.port}")
    again = cli.call("callbacks", "redeliver", "--dead", "--run", "latest")
    assert again.code == 0, again.out
    assert all("webhook-signature" in each.headers for each in hook.received)
    assert hook.received


def test_run_signs_for_its_own_workflow_without_a_list(cli: Cli, hook: Hook) -> None:
    cli.call("run", cli.workflow(hook.workflow(secret_env="TENURE_HOOK_SHOP")), "-q")
    assert all("webhook-signature" in each.headers for each in hook.received)
    assert hook.types[-1] == "run.success"
