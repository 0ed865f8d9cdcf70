"""A secret is planted and then looked for everywhere a person, a program or a thief could look."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, Cli, read_until
from tests.cli.hooks import Hook
from tests.supervisor.promise import AT_LEISURE

pytestmark = pytest.mark.slow

PLANTED = "pl4nted-Secret-0f-mine"
SPY = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {seen}"
"""What ``ps`` shows to every user of the machine."""
RUN = "run-with-a-plant"


def step(name: str, cmd: str, **args: object) -> dict[str, object]:
    return {"name": name, "action": "cmd.run", "args": {"cmd": cmd, **args}}


@pytest.mark.parametrize("supplied", ["environment", "file"])
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
        case "file":
            file.write_text(PLANTED + "\n")
    given = f"token=@{file}" if supplied == "file" else "token"
    said = all_that_is_said(cli, flow, given)
    assert "it is ***" in said[0].out
    nowhere(PLANTED, cli, hook, said, wanted=(file, cli.home / "rendered"))
    assert seen.read_text()
    assert PLANTED not in seen.read_text(), "every user sees the arguments of a process"
    rendered = cli.home / "rendered"
    assert rendered.read_text() == f"key = {PLANTED}\n", "where it was wanted it is"


async def test_what_was_exported_goes_when_the_runner_is_killed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its task is deaf to the word to end, and exports once more."""
    place = cli.home / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv("TENURE_SECRET_TOKEN", PLANTED)
    export = 'echo "copy=$token" >>"$TENURE_OUTPUT"'
    cmd = f"trap '{export}' TERM; {export}; echo written; while :; do sleep 1000; done"
    flow = {"version": "v1", "name": "killed", "secrets": ["token"], "steps": [step("work", cmd)]}
    run = cli.start("run", cli.workflow(json.dumps(flow)), "--secret", "token")
    read_until(run, "| written")
    [folder] = place.glob("tenure-exports-*")
    assert [PLANTED in each.read_text() for each in folder.iterdir()] == [True]
    run.kill()
    run.wait()
    await asyncio.wait_for(until_removed(folder), AT_LEISURE)


async def until_removed(folder: Path) -> None:
    while folder.exists():
        await asyncio.sleep(0.01)


LONG = "x" * 4096
CUT_SHORT = "printf '%s' \"12345$token\"; printf '%s' \"12345$token\" >&2"
UNTIDY = {"tab": "us3rn4me\tp4ssw0rd-0f", "control character": "us3rn4me\x01p4ssw0rd-0f"}


@pytest.mark.parametrize("secret", UNTIDY.values(), ids=UNTIDY)
def test_nothing_of_it_is_where_text_is_cut_and_tidied(
    cli: Cli, hook: Hook, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    at = hook.url.removesuffix("/hook")
    printed = f"echo \"$token\"; head -c {256 * 1024 - 6} /dev/zero | tr '\\0' x"
    steps: list[dict[str, object]] = [
        step("last word", 'printf "login failed for %s\\n" "$token" >&2; exit 2'),
        step("last word, cut", f'printf "%s{LONG[:4090]}" "$token" >&2; exit 2'),
        step("held back", 'printf "denied: %.9s" "$token" | head -c 13 >&2; exit 2'),
        *(
            step(f"at most {most}", CUT_SHORT, max_output_bytes=most)
            for most in (5 + len(secret) // 2, 5 + len(secret) - 1, 5 + len(secret))
        ),
        step("bad export", f'echo "{LONG[:30]} $token" >>"$TENURE_OUTPUT"'),
        step("bad end", f'echo "A<<{LONG[:30]} $token" >>"$TENURE_OUTPUT"'),
        asks("body, cut", f"{at}/echo/200", body=LONG[: 4096 - 8] + "${{ token }}"),
        asks("body, in a message", f"{at}/echo/500", body="denied: ${{ token }}"),
        asks("body, cut in a message", f"{at}/echo/500", body=LONG[:150] + "${{ token }}"),
        asks("redirect", f"{at}/echo/302", body=LONG[:130] + "${{ token }}"),
        asks("address", at + "/echo/500/${{ token }}", body="no"),
        {
            "name": "raises",
            "action": "python.call",
            "args": {
                "function": "importlib:import_module",
                "args": {"name": LONG[:1950] + "${{ token }}"},
            },
        },
        {"name": "waits", "action": "wait.until", "args": {"cmd": printed}},
    ]
    flow = {
        "version": "v1",
        "name": "planted",
        "secrets": ["token"],
        "callbacks": [{"url": hook.url, "events": ["run", "step", "host"]}],
        "steps": [*({**each, "continue_on_error": True} for each in steps), step("end", "exit 1")],
    }
    monkeypatch.setenv("token", secret)  # its own name will do, too
    said = all_that_is_said(cli, flow, "token")
    assert "login failed for ***" in said[0].out
    for part in parts(secret):
        nowhere(part, cli, hook, said)


def asks(name: str, url: str, **args: object) -> dict[str, object]:
    return {"name": name, "action": "http.request", "args": {"url": url, **args}}


def parts(secret: str) -> list[str]:
    """Every six characters of it; also where what is between words was written otherwise."""
    words = [secret, *re.split(r"[\s\x01]+", secret)]
    return list({each[at : at + 6] for each in words for at in range(len(each) - 5)})


def all_that_is_said(cli: Cli, flow: Mapping[str, object], secret: str) -> list[Answer]:
    file = cli.workflow(json.dumps(flow))
    said = [cli.process("run", file, "--secret", secret, "--run-id", RUN)]
    assert said[0].code == 1
    for command in ("status", "explain", "logs", "watch"):
        said += [cli.call(command, RUN), cli.call(command, RUN, "--json")]
    said += [cli.call(*words, "--json") for words in (("list",), ("callbacks", "list"))]
    deliveries = [each["id"] for each in said[-1].json["callbacks"]]
    assert deliveries
    return said + [cli.call("callbacks", "show", each) for each in deliveries]


def nowhere(
    text: str, cli: Cli, hook: Hook, said: list[Answer], wanted: Collection[Path] = ()
) -> None:
    """But in files where it is wanted."""
    assert all(text not in each.out + each.err for each in said), who_tells(text, said)
    assert hook.received
    assert all(text.encode() not in each.body for each in hook.received)
    kept = [path for path in cli.home.rglob("*") if path.is_file() and path not in wanted]
    assert any(path.suffix == ".db" for path in kept)
    assert [path for path in kept if text.encode() in path.read_bytes()] == []


def who_tells(text: str, said: list[Answer]) -> list[str]:
    lines = (line for each in said for line in (each.out + each.err).splitlines() if text in line)
    return [f"{text!r} in {line[:300]}" for line in lines]
