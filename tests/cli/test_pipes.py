"""Readers that pause or leave, of real processes: no error, and never a harm to a run."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.conftest import TENURE, Cli, finish
from tests.cli.flows import BREAK, GREET

pytestmark = pytest.mark.slow

CHATTY = """\
version: v1
name: chatty
steps:
  - {name: talk, action: cmd.run, args: {cmd: "seq 1 200000"}}
  - {name: rest, action: cmd.run, args: {cmd: "seq 200001 400000; echo over"}}
"""


def left(*arguments: str, lines: int = 0, both: bool = False) -> tuple[int, str]:
    """The exit code and stderr of a command whose reader leaves after some lines; ``both``: the
    reader of stderr too."""
    process = subprocess.Popen(
        [TENURE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
    )
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.stdout.close()
    said = b""
    if process.stderr is not None:
        said = process.stderr.read()
        process.stderr.close()
    return process.wait(60), said.decode()


def test_a_reader_that_leaves_is_no_error(cli: Cli) -> None:
    assert left("run", cli.workflow(GREET)) == (0, "")
    assert left("run", cli.workflow(BREAK)) == (1, "")
    assert left("list") == (0, "")
    assert left("list", lines=1) == (0, "")
    assert left("schema", lines=1) == (0, "")
    assert left("--help") == (0, "")
    assert left("watch", "latest", lines=1) == (1, "")


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["lines", "json"])
@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stderr too"])
def test_a_run_whose_reader_leaves_goes_on_to_its_end(
    cli: Cli, arguments: tuple[str, ...], both: bool
) -> None:
    code, said = left("run", cli.workflow(CHATTY), *arguments, lines=2, both=both)
    assert (code, said) == (0, "")
    record = cli.call("status", "latest", "--json").json
    assert record["status"] == "success"
    assert [step["status"] for step in record["steps"]] == ["success", "success"]
    assert record["steps"][1]["hosts"]["local"]["stdout"].endswith("400000\nover\n")


def test_the_code_of_a_run_does_not_depend_on_its_reader(cli: Cli) -> None:
    assert left("run", cli.workflow(BREAK), "--json", lines=1, both=True)[0] == 1
    assert left("run", "none.yaml", both=True)[0] == 2
    assert left("stauts", "--json", both=True)[0] == 2
    assert left("status", "no-such-run", both=True)[0] == 5


def test_logs_whose_reader_leaves(cli: Cli) -> None:
    cli.call("run", cli.workflow(CHATTY), "-q")
    for arguments in ((), ("--json",), ("--raw",), ("--follow",)):
        assert left("logs", "latest", *arguments, lines=1) == (0, "")


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_was_closed_before_is_no_error(cli: Cli, redirection: str) -> None:
    script = f'exec "$0" run "$1" {redirection}'
    done = subprocess.run(["sh", "-c", script, TENURE, cli.workflow(GREET)], timeout=60)
    assert done.returncode == 0
    record = cli.call("status", "latest", "--json").json
    assert record["status"] == "success"
    assert record["steps"][1]["hosts"]["a"]["stdout"] == "bye\n"


def test_a_run_goes_on_although_nobody_reads_its_lines(cli: Cli) -> None:
    """A pager that pauses: the pipe is full, the run ends all the same."""
    run = cli.start("run", cli.workflow(CHATTY))
    while not cli.call("list", "--json").json["runs"]:
        pass
    watched = cli.process("watch", "latest", "--json")
    assert watched.json_lines[-1]["status"] == "success"
    done = finish(run)
    assert done.code == 0
    assert "run success" in done.out


def test_a_full_disk_is_told_apart_from_a_reader_that_left(cli: Cli) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [TENURE, "version"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert done.returncode == 6
        assert done.stderr == "Error: the answer cannot be written: No space left on device\n"
        run = subprocess.run(
            [TENURE, "run", cli.workflow(GREET)], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert run.returncode == 0
    assert b"the report cannot be written" in run.stderr
    assert os.strerror(28).encode() in run.stderr
