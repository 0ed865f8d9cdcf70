"""``tenure callbacks test``: one callback for trying, and what it tells about a receiver."""

from __future__ import annotations

import socket

import pytest
from standardwebhooks import Webhook

from tests.cli.conftest import Cli
from tests.cli.hooks import SECRET, Hook


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


def test_programs_are_told_the_same(cli: Cli, hook: Hook) -> None:
    answer = cli.call("callbacks", "test", hook.url, "--secret-env", "TENURE_HOOK_SHOP", "--json")
    [got] = hook.received
    facts = answer.json
    assert facts["headers"] == got.headers
    assert facts["payload"] == got.said
    assert (facts["outcome"], facts["status"], facts["error"]) == ("delivered", 204, None)
    assert facts["seconds"] > 0


def test_an_unsigned_one_is_called_so(cli: Cli, hook: Hook) -> None:
    shown = cli.call("callbacks", "test", hook.url)
    assert "webhook-signature" not in shown.out
    assert "not signed" in shown.err


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
    cli: Cli,
    hook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    outcome: str,
    said: str,
) -> None:
    monkeypatch.delenv("TENURE_CALLBACK_ATTEMPTS")
    hook.status = status
    shown = cli.call("callbacks", "test", hook.url)
    assert shown.code == 1
    assert f"✗ not taken: answered {status}" in shown.out
    assert said in shown.out
    facts = cli.call("callbacks", "test", hook.url, "--json")
    assert (facts.code, facts.json["outcome"], facts.json["status"]) == (1, outcome, status)


def test_the_last_attempt_is_not_followed_by_another(cli: Cli, hook: Hook) -> None:
    hook.status = 503
    assert "callback_attempts is 1" in cli.call("callbacks", "test", hook.url).out


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


def test_a_target_of_the_settings_is_tried_without_lifting_the_guard(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_CALLBACK_ALLOW_PRIVATE")
    (cli.folder / "tenure.toml").write_text(f'[[callbacks]]\nurl = "{hook.url}"\n')
    assert cli.call("callbacks", "test", hook.url).code == 0


def test_a_variable_that_holds_no_secret_is_the_senders_fault(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_HOOK_SHOP", "whsec_short")
    refused = cli.call("callbacks", "test", hook.url, "--secret-env", "TENURE_HOOK_SHOP")
    assert refused.code == 7
    assert "TENURE_HOOK_SHOP holds no signing secret" in refused.out
    assert hook.received == []


def test_a_secret_that_is_not_there_is_named(cli: Cli, hook: Hook) -> None:
    refused = cli.call("callbacks", "test", hook.url, "--secret-env", "TENURE_HOOK_OTHER")
    assert refused.code == 2
    assert "TENURE_HOOK_OTHER is not set" in refused.err
    assert hook.received == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://example.com/"], "url: must begin with http:// or https://"),
        (["http://example.com:x/"], "url: has a port that is no number from 1 to 65535"),
        (["http://example.com", "--secret-env", "SHOP"], "name it TENURE_HOOK_SHOP"),
    ],
)
def test_what_cannot_be_a_target_is_wrong_usage(cli: Cli, arguments: list[str], said: str) -> None:
    refused = cli.call("callbacks", "test", *arguments)
    assert refused.code == 2
    assert said in refused.err


@pytest.mark.parametrize("style", [[], ["--json"]], ids=["text", "json"])
def test_credentials_in_the_url_are_refused_and_not_shown(
    cli: Cli, hook: Hook, style: list[str]
) -> None:
    url = hook.url.replace("//", "//ada:opensesame@")
    refused = cli.call("callbacks", "test", url, *style)
    assert (refused.code, hook.received) == (2, [])
    assert "give it in a header, Authorization" in refused.err
    assert "opensesame" not in refused.err + refused.out
