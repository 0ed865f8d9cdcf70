"""``tenure plan --secret``: what a secret would change is shown, the secret is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Cli

pytestmark = pytest.mark.slow

SECRET = "Zq\"pla'nted\\|secret7"
KEY = "-----BEGIN-----\nZqfirstline\nZq2\nx\x07Zqlastline"


def flow(*steps: dict[str, Any]) -> str:
    named = [{"name": f"step {number}", **each} for number, each in enumerate(steps)]
    return json.dumps({"version": "v1", "name": "conf", "secrets": ["token"], "steps": named})


def renders(template: str, dest: object) -> dict[str, Any]:
    return {"action": "template.render", "args": {"template": template, "dest": str(dest)}}


def planned(cli: Cli, *steps: dict[str, Any]) -> str:
    """For people and for programs; the secret is in neither."""
    said = cli.call("plan", cli.workflow(flow(*steps)), "--secret", "token")
    told = cli.call("plan", cli.workflow(flow(*steps)), "--secret", "token", "--json")
    assert (said.code, told.code) == (0, 0), said.err + told.err
    assert "Zq" not in said.out + said.err + told.out + told.err
    return said.out


@pytest.fixture(autouse=True)
def token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", SECRET)


def test_the_difference_is_masked_on_both_sides(cli: Cli) -> None:
    dest = cli.folder / "conf"
    dest.write_text(f"key = {SECRET}\nport = 1\n")
    said = planned(cli, renders("key = {{ token }}\nport = 2\n", dest))
    assert [line.strip() for line in said.splitlines()][-4:] == [
        "@@ -1,2 +1,2 @@",
        "key = ***",
        "-port = 1",
        "+port = 2",
    ]


@pytest.mark.parametrize("there", [False, True])
def test_of_a_secret_of_several_lines_no_line_is_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setenv("TENURE_SECRET_TOKEN", KEY)
    dest = cli.folder / "conf"
    if there:
        dest.write_text(f"# old\n{KEY}\n# end")
    said = planned(cli, renders("# new\n{{ token }}\n", dest))
    assert "# new" in said
    assert "***" in said


def test_without_its_value_nothing_is_promised(cli: Cli) -> None:
    said = cli.call("plan", cli.workflow(flow(renders("{{ token }}", "/nowhere/conf"))))
    assert "depends on a secret: token; give it with --secret to see more" in said.out


def test_a_value_that_cannot_be_had_is_said_to_be_missing_as_for_a_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_SECRET_TOKEN")
    file = cli.workflow(flow(renders("{{ token }}", "/nowhere/conf")))
    planned, executed = (cli.call(verb, file, "--secret", "token") for verb in ("plan", "run"))
    assert planned.code == executed.code == 2
    assert "token is set neither as TENURE_SECRET_TOKEN" in planned.err


def test_a_step_that_would_show_it_to_others_would_fail_and_asks_no_host(cli: Cli) -> None:
    said = planned(cli, renders("x", f"{cli.folder}/${{{{ token }}}}"))
    assert "would fail" in said
    assert "args.dest: there is a secret in it" in said


def test_what_else_is_said_of_a_step_is_masked(cli: Cli) -> None:
    loops = {
        "action": "http.request",
        "args": {"url": "http://h/${{ item }}"},
        "loop": ["${{ token }}"],
    }
    assert "***" in planned(cli, loops)
