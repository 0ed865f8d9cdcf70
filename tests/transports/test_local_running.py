"""What a command gets, what it prints, how it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.ports.execution import Command
from tenure.transports.local import LocalTransport, max_processes
from tenure.transports.scratch import MOST
from tests.transports.conftest import NewTransport
from tests.transports.keeping import HERE, Blocked, Kept, running, sh, tasks

pytestmark = pytest.mark.slow

HOSTILE = "'; rm -rf / #\n$(reboot) `id` \"\\ \t ünïcödé \udcff *"


class TestEnd:
    async def test_exit_code_and_both_streams(self, transport: LocalTransport) -> None:
        kept = Kept()
        end = await transport.run(HERE, sh("echo out; echo err >&2; exit 3"), kept)
        assert (end.code, end.signal) == (3, None)
        assert (kept.stdout, kept.stderr) == (b"out\n", b"err\n")

    async def test_a_signal_shows_as_a_shell_shows_it(self, transport: LocalTransport) -> None:
        end = await transport.run(HERE, sh("kill -USR1 $$"), Kept())
        assert (end.code, end.signal) == (128 + signal.SIGUSR1, signal.SIGUSR1)

    async def test_output_that_was_closed_early_does_not_end_it(
        self, transport: LocalTransport, tmp_path: Path
    ) -> None:
        script = f"exec >&- 2>&-; sleep 0.1; : > {tmp_path}/went-on"
        assert (await transport.run(HERE, sh(script), Kept())).code == 0
        assert (tmp_path / "went-on").exists()

    async def test_two_hundred_at_once(self, transport: LocalTransport) -> None:
        kept = [Kept() for _ in range(200)]
        commands = (sh(f"echo {number}; exit {number % 7}") for number in range(200))
        ends = await asyncio.gather(*map(transport.run, [HERE] * 200, commands, kept))
        assert [end.code for end in ends] == [number % 7 for number in range(200)]
        assert [int(each.stdout) for each in kept] == list(range(200))


async def test_bytes_are_handed_over_untouched(transport: LocalTransport) -> None:
    kept, data = Kept(), bytes(range(256)) * 3
    await transport.run(HERE, Command(argv=("cat",), stdin=data), kept)
    assert kept.stdout == data


async def test_output_is_handed_over_while_it_runs(transport: LocalTransport) -> None:
    kept = Kept()
    async with running(transport, sh("echo 1; exec sleep 1000"), kept) as task:
        await kept.shows(b"1")
        assert not task.done()


async def test_more_at_once_than_allowed_wait_for_their_turn(new_transport: NewTransport) -> None:
    before = tasks()
    transport, kept = new_transport(most_processes=2), [Kept() for _ in range(3)]
    async with (
        running(transport, sh("echo up; exec sleep 1000"), kept[0]) as first,
        running(transport, sh("echo up; exec sleep 1000"), kept[1]),
        running(transport, sh("echo up"), kept[2]) as third,
    ):
        await kept[0].shows(b"up")
        await kept[1].shows(b"up")
        assert len(tasks() - before) == 2
        first.cancel()
        await third
        assert kept[2].stdout == b"up\n"


@pytest.mark.parametrize(
    ("open_files", "processes"), [(1024, 224), (20, 1), (1 << 20, 10_000), (-1, 10_000)]
)
def test_processes_leave_files_for_the_rest(open_files: int, processes: int) -> None:
    assert max_processes(open_files) == processes


# -- standard input -------------------------------------------------------------------------------


async def test_input_larger_than_a_pipe_passes_through(transport: LocalTransport) -> None:
    kept, data = Kept(), os.urandom(1 << 20) * 3
    end = await transport.run(HERE, Command(argv=("cat",), stdin=data), kept)
    assert end.code == 0
    assert kept.stdout == data


async def test_input_nobody_reads_is_no_failure(transport: LocalTransport) -> None:
    end = await transport.run(HERE, Command(argv=("true",), stdin=b"x" * (1 << 20)), Kept())
    assert end.code == 0


async def test_without_input_reading_ends_at_once(transport: LocalTransport) -> None:
    kept = Kept()
    await transport.run(HERE, sh("cat; echo end"), kept)
    assert kept.stdout == b"end\n"


# -- environment, folder, session -----------------------------------------------------------------


async def printed_env(transport: LocalTransport, env: dict[str, str]) -> dict[bytes, bytes]:
    kept = Kept()
    await transport.run(HERE, Command(argv=("env", "-0"), env=env), kept)
    lines = (line.partition(b"=") for line in kept.stdout.split(b"\0") if line)
    return {name: value for name, _, value in lines}


async def test_hostile_values_arrive_as_they_are(transport: LocalTransport) -> None:
    env = await printed_env(transport, {"VALUE": HOSTILE, "EMPTY": ""})
    assert env[b"VALUE"] == HOSTILE.encode("utf-8", "surrogateescape")
    assert env[b"EMPTY"] == b""


async def test_given_variables_are_added_to_the_machines(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZONE", "a")
    monkeypatch.setenv("TIER", "b")
    env = await printed_env(transport, {"ZONE": "given"})
    assert (env[b"ZONE"], env[b"TIER"]) == (b"given", b"b")


async def test_our_own_settings_are_not_inherited(transport: LocalTransport) -> None:
    env = await printed_env(transport, {"TENURE_RUN_ID": "run-1"})
    ours = {name for name in env if name.startswith(b"TENURE_")}
    assert ours == {b"TENURE_RUN_ID", b"TENURE_OUTPUT"}


async def test_working_directory(transport: LocalTransport, tmp_path: Path) -> None:
    kept = Kept()
    await transport.run(HERE, sh("pwd -P", cwd=str(tmp_path)), kept)
    assert kept.stdout.decode().strip() == str(tmp_path.resolve())


async def test_it_leads_a_session_of_its_own(transport: LocalTransport) -> None:
    kept = Kept()
    await transport.run(HERE, sh("echo $$; ps -o sid=,pgid= -p $$"), kept)
    assert len(set(kept.stdout.split())) == 1


# -- exports --------------------------------------------------------------------------------------


async def test_what_is_written_to_the_export_file(transport: LocalTransport) -> None:
    script = 'echo A=1 >> "$TENURE_OUTPUT"; echo B=2 >> "$TENURE_OUTPUT"; exit 4'
    end = await transport.run(HERE, sh(script), Kept())
    assert (end.exported, end.exported_cut, end.code) == (b"A=1\nB=2\n", False, 4)


async def test_each_task_has_a_file_of_its_own(transport: LocalTransport) -> None:
    commands = [sh(f'echo N={number} > "$TENURE_OUTPUT"') for number in range(20)]
    ends = await asyncio.gather(*(transport.run(HERE, each, Kept()) for each in commands))
    assert [end.exported for end in ends] == [f"N={number}\n".encode() for number in range(20)]


@pytest.mark.parametrize(("size", "cut"), [(MOST, False), (MOST + 1, True)])
async def test_exports_are_bounded(transport: LocalTransport, size: int, cut: bool) -> None:
    end = await transport.run(HERE, sh(f'head -c {size} /dev/zero > "$TENURE_OUTPUT"'), Kept())
    assert (len(end.exported), end.exported_cut) == (MOST, cut)


@pytest.mark.parametrize(
    "odd", ["mkfifo $F", "mkdir -p $F/sub", "ln -s /etc/passwd $F", "ln -s /nowhere $F"]
)
async def test_an_odd_export_file_is_nothing_and_is_removed(
    transport: LocalTransport, odd: str, temporary: Path
) -> None:
    end = await transport.run(HERE, sh(f'F="$TENURE_OUTPUT"; {odd}'), Kept())
    assert (end.code, end.exported) == (0, b"")
    assert [list(folder.iterdir()) for folder in temporary.glob("tenure-*")] == [[]]


async def test_the_folder_is_private_and_empty_afterwards(
    transport: LocalTransport, temporary: Path
) -> None:
    await transport.run(HERE, sh('echo A=1 > "$TENURE_OUTPUT"'), Kept())
    [folder] = temporary.glob("tenure-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []


async def test_a_folder_that_a_cleaner_took_is_made_anew(
    transport: LocalTransport, temporary: Path
) -> None:
    command = sh('echo A=1 > "$TENURE_OUTPUT"')
    await transport.run(HERE, command, Kept())
    [folder] = temporary.glob("tenure-*")
    folder.rename(temporary / "taken")
    (folder / "theirs").mkdir(parents=True)  # somebody else's, under the same name
    assert (await transport.run(HERE, command, Kept())).exported == b"A=1\n"
    assert len(list(temporary.glob("tenure-*"))) == 2
    await transport.close()
    assert list(temporary.glob("tenure-*/*")) == [folder / "theirs"]
    shutil.rmtree(folder)


def test_a_program_that_forgets_to_close_leaves_no_folder(tmp_path: Path, parent: str) -> None:
    program = f"""
import asyncio, os
from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, STARTERS, Kept, sh

transport = LocalTransport(STARTERS["{parent}"]())
asyncio.run(transport.run(HERE, sh(":"), Kept()))
if os.fork() == 0:
    raise SystemExit  # a child that ends must not take its parent's folder
os.wait()
print(len(os.listdir(os.environ["TMPDIR"])))
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.strip() == "1", done.stderr
    assert list(tmp_path.iterdir()) == []


# -- bounded memory -------------------------------------------------------------------------------


async def test_a_process_waits_while_nobody_takes_its_output(
    transport: LocalTransport, tmp_path: Path
) -> None:
    size, mark, blocked = 4 << 20, tmp_path / "all-written", Blocked()
    script = f"head -c {size} /dev/zero; : > {mark}"
    async with running(transport, sh(script), blocked) as task:
        await asyncio.wait_for(blocked.asked.wait(), 20)
        # Another process runs from start to end meanwhile: time enough for the first one.
        await transport.run(HERE, sh(f"head -c {size} /dev/zero"), Kept())
        assert not mark.exists()
        blocked.go.set()
        await task
        assert blocked.size == size


@pytest.mark.slow
def test_a_gigabyte_of_output_needs_little_memory(parent: str) -> None:
    program = f"""
import asyncio, resource
from tenure.ports.execution import Command
from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, STARTERS

class Counted:
    size = 0
    async def write(self, stream, data):
        self.size += len(data)

async def main():
    transport, counted = LocalTransport(STARTERS["{parent}"]()), Counted()
    await transport.run(HERE, Command(argv=("true",)), counted)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await transport.run(HERE, Command(argv=("head", "-c", "1G", "/dev/zero")), counted)
    await transport.close()
    assert counted.size == 1 << 30
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kib = int(done.stdout)
    assert kib < 4 * 1024, f"{kib} KiB more"
