"""The command as a person meets it first: every command explains itself, the explanations agree
with one another, and a shell completes what is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import tenure
from tenure.cli.app import app
from tenure.cli.group import LazyGroup
from tenure.cli.options import Verb
from tests.cli.conftest import TENURE, Cli
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
    expected = (
        "annotate, approve, callbacks list, callbacks redeliver, callbacks show, callbacks test, "
        "cancel, completion, doctor, explain, gateway, list, logs, plan, reconcile, retry, run, "
        "schema, status, store check, store migrate, store prune, submit, token create, token "
        "list, token revoke, up, validate, version, watch, worker"
    )
    assert sorted(" ".join(path) for path in verbs()) == expected.split(", ")


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
        (["list", "--limit", "many"], "'many' is not a valid whole number"),
        (["list", "--status", "broken"], "broken"),
        (["list", "--since", "yesterday"], "neither a duration"),
        (["annotate", "latest", "novalue"], "neither name=text nor name:=JSON"),
        (["store", "prune"], "Missing option"),
        (["store", "prune", "--older-than", "30"], "has no unit: 30d are days"),
        (["run", "x.yaml", "--timeout", "soon"], "not a duration"),
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
@pytest.mark.parametrize("verb", ["list", "status", "watch"])
def test_looking_loads_nothing_that_only_running_needs(cli: Cli, verb: str) -> None:
    cli.call("run", cli.workflow(GREET), "-q")
    heavy = {
        "importlib.metadata", "jinja2", "yaml", "rich", "tomllib", "tenure.runner", "starlette",
    }  # fmt: skip
    assert loaded(verb, *([] if verb == "list" else ["latest"])) & heavy == set()


# -- the reference page ---------------------------------------------------------------------------

ASK = """
set -eu
eval "$(tenure completion bash)"
COMP_WORDS=($1); [ "${1% }" = "$1" ] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tenure_completion tenure
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(line: str) -> list[str]:
    path = f"{Path(TENURE).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_bash_completes_verbs_options_statuses_runs_steps_hosts_and_files(cli: Cli) -> None:
    cli.call("run", cli.workflow(GREET), "-q", "--run-id", "my-run-01")
    (cli.folder / "notes.txt").touch()
    (cli.folder / "deep").mkdir()
    (cli.folder / "deep/other.yml").touch()
    (cli.folder / ".hidden.yaml").touch()
    assert offered("tenure st") == ["status", "store"]
    assert offered("tenure list --status f") == ["failed"]
    assert offered("tenure status ") == ["latest", "my-run-01"]
    assert offered("tenure logs latest hello ") == ["a", "b"]
    assert offered("tenure run ") == ["deep/", "flow.yaml"]


@pytest.mark.slow
def test_completion_is_silent_where_there_is_nothing(cli: Cli) -> None:
    assert offered("tenure status x") == []
    assert not (cli.home / ".local").exists(), "asking must not create a store"
    (cli.folder / "tenure.toml").write_text("broken = [")
    assert offered("tenure status x") == []


def test_scripts_for_all_shells(cli: Cli) -> None:
    for shell, words in (
        ("bash", "complete -o nosort -F _tenure_completion tenure"),
        ("zsh", "#compdef tenure"),
        ("fish", "complete --no-files --command tenure"),
    ):
        assert words in cli.call("completion", shell).out
        answer = cli.call("completion", shell, "--json").json
        assert answer["shell"] == shell
        assert words in answer["script"]


@pytest.mark.slow
def test_command_is_found_by_its_package_too(cli: Cli) -> None:
    """Also with verbs, errors and exit codes: it is the same command."""

    def called(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True)

    assert called(TENURE, "--version").stdout == f"tenure {tenure.__version__}\n"
    for arguments in (["--version"], ["no-such-verb"]):
        answer, expected = (
            called(*start, *arguments) for start in ((sys.executable, "-m", "tenure"), (TENURE,))
        )
        assert (answer.returncode, answer.stdout, answer.stderr) == (
            expected.returncode,
            expected.stdout,
            expected.stderr,
        )
