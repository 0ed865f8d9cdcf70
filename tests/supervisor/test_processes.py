"""Facts about processes, and signals that reach nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.transports.supervisor.cgroups import RELEASED
from tenure.transports.supervisor.processes import (
    Process,
    all_processes,
    look_at,
    send,
    send_to_group,
)
from tenure.transports.supervisor.tree import TOKEN_BITS, LimitMark, Marks, value_in
from tests.supervisor.hostile import _HEADLESS

pytestmark = pytest.mark.slow


@contextmanager
def started(
    *argv: str, session: bool = True, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, start_new_session=session, env=env, stdout=subprocess.PIPE) as it:
        try:
            while env and not Path(f"/proc/{it.pid}/environ").read_bytes():
                os.sched_yield()  # its program is being loaded
            yield it
        finally:
            it.kill()


def seen(pid: int) -> Process:
    process = look_at(pid)
    assert process is not None
    return process


def test_what_is_told_of_a_process(tmp_path: Path) -> None:
    odd = tmp_path / "a (b) c) "
    odd.symlink_to("/bin/sleep")
    with started(str(odd), "25") as process:
        found = all_processes()[process.pid]
        assert (found.pid, found.parent) == (process.pid, os.getpid())
        assert (found.group, found.session) == (process.pid, process.pid)
        assert found.alive
        assert found.start == seen(process.pid).start


def test_a_zombie_does_not_live() -> None:
    with started("true") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not seen(process.pid).alive
    assert look_at(process.pid) is None


def test_a_process_lives_on_without_its_main_thread() -> None:
    with started(sys.executable, "-I", "-S", "-c", _HEADLESS) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        while " Z " not in stat.read_text():
            pass
        assert seen(process.pid).alive
        send(seen(process.pid), signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("way", [send, send_to_group])
def test_a_number_that_was_given_anew_is_not_signalled(way: type[object]) -> None:
    with started("sleep", "25") as process:
        now = seen(process.pid)
        before = Process(now.pid, now.parent, now.group, now.session, now.start - 1, True)
        way(before, signal.SIGKILL)  # type: ignore[call-arg]
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        way(now, signal.SIGKILL)  # type: ignore[call-arg]
        assert process.wait() == -signal.SIGKILL
    way(now, signal.SIGKILL)  # type: ignore[call-arg]


# -- marks ----------------------------------------------------------------------------------------


def test_the_mark_outlives_environment_session_and_parents() -> None:
    marks, branding = Marks(5), LimitMark()
    branding.put(marks.add(3, b""))
    try:
        script = "env -i setsid sh -c '(setsid sleep 25 & echo $!)'"
        with started("sh", "-c", script) as process:
            assert process.stdout is not None
            orphan = int(process.stdout.readline())
    finally:
        branding.take_off()
    try:
        assert marks.whose(orphan) == 3
        assert marks.whose(os.getpid()) is None
        assert Marks(6).whose(orphan) is None, "another supervisor's"
        marks.remove(3, b"")
        assert marks.whose(orphan) == RELEASED
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_without_the_limit_the_variable_tells() -> None:
    env = {b"TENURE_OUTPUT": b"/tmp/one", b"PATH": b"/bin"}
    marks = Marks(5)
    marks.add(3, value_in(env))
    with started("sleep", "25", env={"TENURE_OUTPUT": "/tmp/one"}) as process:
        assert marks.whose(process.pid) == 3
    with started("sleep", "25", env={"TENURE_OUTPUT": "/tmp/other"}) as process:
        assert marks.whose(process.pid) is None


def test_tasks_of_two_supervisors_are_told_apart() -> None:
    most = 2**TOKEN_BITS - 1
    limits = {Marks(token).add(task, b"") for token in (0, 1, most) for task in (1, 2, 2**24 - 1)}
    assert len(limits) == 9
    assert max(limits) < 2**63 - 1, "more is no limit at all"
