"""Output of real processes, much of it too; readers that pause or leave are no error, and never a
harm to a run."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

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


def test_a_reader_that_leaves_is_no_error_and_changes_no_code(cli: Cli) -> None:
    assert left("run", cli.workflow(GREET)) == (0, "")
    assert left("list", lines=1) == (0, "")
    assert left("--help") == (0, "")
    assert left("run", cli.workflow(BREAK), "--json", lines=1, both=True)[0] == 1
    assert left("watch", "latest", lines=1) == (1, "")
    assert left("status", "no-such-run", both=True)[0] == 5


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


GIGABYTE = """\
version: v1
name: gigabyte
steps:
  - name: before
    action: cmd.run
    args: {cmd: 'echo 1 > "${ready}"; read -r go < "${gate}"'}
  - name: flood
    action: cmd.run
    args: {cmd: 'yes "$(head -c 4000 /dev/zero | tr "\\0" x)" | head -c 1000000000'}
  - name: after
    action: cmd.run
    args: {cmd: 'echo 2 > "${ready}"; read -r go < "${gate}"'}
"""


def peak_kilobytes(pid: int) -> int:
    """The most memory the process itself has ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


class Meeting:
    """Where a step says that it has come so far, and waits to be let go."""

    def __init__(self, folder: Path) -> None:
        self.ready, self.gate = folder / "ready", folder / "gate"
        for path in (self.ready, self.gate):
            os.mkfifo(path)
        self._ready = os.open(self.ready, os.O_RDWR)
        self._gate = os.open(self.gate, os.O_RDWR)

    def wait(self) -> None:
        readable, _, _ = select.select([self._ready], [], [], 60)
        assert readable, "the step never came so far"
        os.read(self._ready, 100)

    def let_go(self) -> None:
        os.write(self._gate, b"go\n")

    def close(self) -> None:
        os.close(self._ready)
        os.close(self._gate)


def test_a_gigabyte_of_output_takes_little_memory(cli: Cli) -> None:
    meeting = Meeting(cli.home)
    run = subprocess.Popen(
        [
            *(TENURE, "run", cli.workflow(GIGABYTE)),
            *("--var", f"ready={meeting.ready}", "--var", f"gate={meeting.gate}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        meeting.wait()
        before = peak_kilobytes(run.pid)
        meeting.let_go()
        meeting.wait()
        grown = peak_kilobytes(run.pid) - before
        meeting.let_go()
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()
        meeting.close()
    assert grown < 64 * 1024
    host = cli.call("status", "latest", "--json").json["steps"][1]["hosts"]["local"]
    assert host["truncated"] is True
    kept = cli.process("logs", "latest", "flood", "--raw").out
    assert 10 * 1024 * 1024 < len(kept) < 11 * 1024 * 1024
    assert kept.endswith("more bytes were dropped here]\n")


SIX_HOSTS = """
version: v1
name: chatty
inventory:
  hosts: {a: {address: local}, b: {address: local}, c: {address: local}, d: {address: local},
          e: {address: local}, f: {address: local}}
steps:
  - {name: much, action: cmd.run, args: {cmd: "seq 3000; echo a word >&2"}}
  - name: again
    targets: [a]
    action: cmd.run
    loop: [x, y]
    retries: 1
    args: {cmd: 'echo "$item $TENURE_TASK_ID"; test "${TENURE_TASK_ID##*:}" = 2'}
"""


def printed(text: str) -> list[str]:
    """Lines of output, behind step and host; streams of one host come in any order."""
    return sorted(line.partition("  ")[2] for line in text.splitlines() if " | " in line)


def test_watch_shows_all_output_of_a_run_that_ended_long_ago(cli: Cli) -> None:
    ran = cli.call("run", cli.workflow(SIX_HOSTS), "--run-id", "chatty-run")
    watched = cli.call("watch", "chatty-run")
    assert (ran.code, watched.code) == (0, 0)
    assert len(printed(ran.out)) == 6 * 3001 + 4
    assert printed(watched.out) == printed(ran.out)
    last_output = max(n for n, line in enumerate(watched.out.splitlines()) if " | " in line)
    assert "run success" in watched.out.splitlines()[last_output + 1 :][-2]


def test_submit_that_waits_shows_all_output_of_a_run_that_ends_quickly(cli: Cli) -> None:
    worker = cli.start("worker")
    answer = cli.process("submit", cli.workflow(SIX_HOSTS), "--wait")
    worker.terminate()
    worker.communicate()
    assert answer.code == 0
    assert len(printed(answer.out)) == 6 * 3001 + 4
