"""Every command explains itself, and the explanations agree with one another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tools import cli_reference

from tenure.cli.app import app
from tenure.cli.group import LazyGroup
from tenure.cli.options import Verb
from tests.cli.conftest import Cli
from tests.cli.flows import GREET


def groups(group: LazyGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, LazyGroup):
            yield from groups(command, (*path, name))


def found(path: tuple[str, ...]) -> click.Command:
    command: click.Command = app
    for name in path:
        assert isinstance(command, LazyGroup)
        inner = command.get_command(click.Context(command), name)
        assert inner is not None
        command = inner
    return command


def verbs() -> list[tuple[str, ...]]:
    return [
        (*path, name)
        for path in groups(app)
        for name in names(path)
        if isinstance(found((*path, name)), Verb)
    ]


def names(path: tuple[str, ...]) -> list[str]:
    group = found(path)
    assert isinstance(group, LazyGroup)
    return group.list_commands(click.Context(group))


def test_the_commands_are_those_of_the_specification() -> None:
    assert {" ".join(path) for path in verbs()} == {
        "annotate",
        "callbacks list",
        "callbacks redeliver",
        "callbacks show",
        "callbacks test",
        "approve",
        "cancel",
        "completion",
        "doctor",
        "explain",
        "gateway",
        "list",
        "logs",
        "plan",
        "reconcile",
        "retry",
        "run",
        "schema",
        "status",
        "store check",
        "submit",
        "up",
        "worker",
        "store migrate",
        "store prune",
        "token create",
        "token list",
        "token revoke",
        "validate",
        "version",
        "watch",
    }


@pytest.mark.parametrize("path", verbs(), ids=" ".join)
def test_every_command_has_help_an_example_and_json(cli: Cli, path: tuple[str, ...]) -> None:
    shown = cli.call(*path, "--help")
    assert shown.code == 0
    assert f"tenure {' '.join(path)}" in shown.out.partition("Example")[2]
    assert "--json" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert cli.call(*path, "-h").out == shown.out


@pytest.mark.parametrize("path", verbs(), ids=" ".join)
def test_the_one_line_help_is_the_first_line_of_the_long_one(path: tuple[str, ...]) -> None:
    group = found(path[:-1])
    assert isinstance(group, LazyGroup)
    lines = {name: line for section in group.sections.values() for name, line in section.items()}
    assert (found(path).help or "").splitlines()[0] == lines[path[-1]]


@pytest.mark.parametrize("path", verbs(), ids=" ".join)
def test_examples_name_only_options_that_exist(path: tuple[str, ...]) -> None:
    command = found(path)
    assert isinstance(command, Verb)
    options = {name for parameter in command.params for name in parameter.opts}
    for example in command.examples:
        words = example.partition("#")[0].split()
        assert {word.rstrip('"') for word in words if word.startswith("--")} <= options


def test_a_group_explains_itself_too(cli: Cli) -> None:
    for path in groups(app):
        shown = cli.call(*path, "--help").out
        assert "Examples:" in shown
        bare = cli.call(*path)
        assert (bare.code, bare.out) == (2, "")
        assert bare.err == shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sing"], "No such command 'sing'"),
        (["stauts"], "Did you mean 'status'?"),
        (["store", "chek"], "Did you mean 'check'?"),
        (["list", "--colour"], "No such option"),
        (["list", "--limit", "0"], "0"),
        (["list", "--limit", "many"], "'many' is not a valid whole number"),
        (["list", "--status", "broken"], "broken"),
        (["list", "--since", "yesterday"], "neither a duration"),
        (["list", "--label", "team"], "key=value"),
        (["status"], "Missing argument"),
        (["status", "a", "b"], "unexpected extra argument"),
        (["annotate", "latest"], "Missing argument"),
        (["annotate", "latest", "novalue"], "neither name=text nor name:=JSON"),
        (["store", "prune"], "Missing option"),
        (["store", "prune", "--older-than", "30"], "has no unit: write 30s"),
        (["completion", "tcsh"], "tcsh"),
        (["logs", "latest", "--attempt", "0"], "0"),
        (["run", "x.yaml", "--timeout", "soon"], "not a duration"),
        (["validate"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_apart_and_exits_with_2(
    cli: Cli, arguments: list[str], said: str
) -> None:
    refused = cli.call(*arguments)
    assert refused.code == 2
    assert said in refused.err
    assert refused.out == ""


def loaded(*arguments: str) -> set[str]:
    """The modules a command has loaded when it has answered."""
    probe = (
        "import sys; sys.argv[0] = 'tenure'\n"
        "from tenure.cli.entry import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-c", probe, *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(shown.splitlines()[-1].split())


def test_help_loads_no_command() -> None:
    heavy = {"asyncio", "msgspec", "rich", "apsw", "yaml", "jinja2", "logging"}
    assert loaded("--help") & heavy == set()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["list", "status", "logs", "explain", "watch"])
def test_looking_loads_nothing_that_only_running_needs(cli: Cli, verb: str) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    heavy = {
        "importlib.metadata", "jinja2", "yaml", "rich", "tomllib", "tenure.runner", "starlette",
    }  # fmt: skip
    assert loaded(verb, *([] if verb == "list" else ["latest"])) & heavy == set()


# -- the reference page ---------------------------------------------------------------------------


def test_the_committed_reference_is_fresh() -> None:
    assert cli_reference.main(["--check"]) == 0


def test_a_stale_reference_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "cli.md"
    assert cli_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert cli_reference.main(["--folder", str(tmp_path)]) == 0
    assert cli_reference.main(["--check", "--folder", str(tmp_path)]) == 0
    page.write_text(page.read_text().replace("| 3 |", "| 33 |"))
    assert cli_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "run `make docs`" in capsys.readouterr().err
    text = page.read_text()
    assert all(f"## tenure {' '.join(path)}\n" in text for path in verbs())
