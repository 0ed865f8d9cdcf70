"""A secret is planted and then looked for everywhere a person, a program or a thief could look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, Cli
from tests.cli.hooks import Hook

pytestmark = pytest.mark.slow

PLANTED = "pl4nted-Secret-0f-mine"
SPY = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {seen}"
"""What ``ps`` shows to every user of the machine."""
RUN = "run-with-a-plant"


def step(name: str, cmd: str, **rest: object) -> dict[str, object]:
    return {"name": name, "action": "cmd.run", "args": {"cmd": cmd}, **rest}


@pytest.mark.parametrize("supplied", ["environment", "file", "short environment"])
def test_it_is_nowhere(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch, supplied: str
) -> None:
    seen, file = cli.home / "seen", cli.home / "elsewhere"
    flow = {
        "version": "v1",
        "name": "planted",
        "secrets": ["token"],
        "callbacks": [{"url": hook.url, "events": ["run", "step", "host"]}],
        "steps": [
            step("prints", 'echo "it is $token"; echo "$token" >&2'),
            step("exports", 'echo "copy=$token" >> "$TENURE_OUTPUT"'),
            step("is seen", SPY.format(seen=seen) + '; test -n "$copy"'),
            step("in pieces", 'for c in $(echo "$token" | fold -w 3); do printf %s "$c"; done'),
            {
                "name": "renders",
                "action": "template.render",
                "args": {"template": "key = {{ token }}\n", "dest": str(cli.home / "rendered")},
            },
            {
                "name": "asks",
                "action": "http.request",
                "continue_on_error": True,
                "args": {"url": "http://127.0.0.1:1/", "headers": {"x-key": "${{ token }}"}},
            },
            step("fails", 'echo "denied: $token" >&2; exit 1'),
        ],
    }
    match supplied:
        case "environment":
            monkeypatch.setenv("TENURE_SECRET_TOKEN", PLANTED)
        case "short environment":
            monkeypatch.setenv("token", PLANTED)
        case "file":
            file.write_text(PLANTED + "\n")
    given = f"token=@{file}" if supplied == "file" else "token"
    said = [cli.process("run", cli.workflow(json.dumps(flow)), "--secret", given, "--run-id", RUN)]
    assert said[0].code == 1
    for command in ("status", "explain", "logs", "watch"):
        said += [cli.process(command, RUN), cli.process(command, RUN, "--json")]
    said += [cli.process(*words, "--json") for words in (("list",), ("callbacks", "list"))]
    deliveries = [each["id"] for each in said[-1].json["callbacks"]]
    said += [cli.call("callbacks", "show", each) for each in deliveries]
    assert "it is ***" in said[0].out
    assert deliveries
    assert all(PLANTED not in each.out + each.err for each in said), who_tells(said)
    assert hook.received
    assert all(PLANTED.encode() not in each.body for each in hook.received)
    assert seen.read_text()
    assert PLANTED not in seen.read_text(), "every user sees the arguments of a process"
    rendered = cli.home / "rendered"
    assert rendered.read_text() == f"key = {PLANTED}\n", "where it was wanted it is"
    kept = [path for path in cli.home.rglob("*") if path.is_file() and path not in (file, rendered)]
    assert any(path.suffix == ".db" for path in kept)
    assert [path for path in kept if PLANTED.encode() in read(path)] == []


def who_tells(said: list[Answer]) -> list[str]:
    return [each.out + each.err for each in said if PLANTED in each.out + each.err]


def read(path: Path) -> bytes:
    return path.read_bytes()
