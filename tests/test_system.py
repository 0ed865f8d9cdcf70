"""Who this process is, and whether another one is gone."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from tenure import system
from tenure.model.ids import RunIds, check_run_id
from tenure.ports.leases import Presence

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

CHILD = "from tenure import system; print(system.new_owner_id(), flush=True); input()"


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A live process and its owner id."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    owner_id = process.stdout.readline().strip()
    yield process, owner_id
    process.kill()
    process.communicate()


def replaced(owner_id: str, position: int, part: str) -> str:
    parts = owner_id.split("/")
    parts[position] = part
    return "/".join(parts)


def in_child(act: Callable[[], str]) -> str:
    """What ``act`` answers in a forked copy of this process."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, act().encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def test_owner_ids_are_unique_and_name_their_process() -> None:
    made = {system.new_owner_id() for _ in range(100)}
    assert len(made) == 100
    machine, boot, _namespace, pid, _start, _random = made.pop().split("/")
    assert (machine, boot, int(pid)) == (os.uname().nodename, system.boot_id(), os.getpid())


def test_a_killed_process_is_proven_dead_also_before_anybody_reaps_it(
    child: tuple[subprocess.Popen[str], str],
) -> None:
    process, owner_id = child
    assert not system.proven_dead(owner_id)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert system.proven_dead(owner_id), "a zombie runs nothing"
    process.wait()
    assert system.proven_dead(owner_id)


def test_a_frozen_process_is_there(child: tuple[subprocess.Popen[str], str]) -> None:
    process, owner_id = child
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert system.presence(owner_id) is Presence.ALIVE
    assert system.presence(replaced(owner_id, 0, "elsewhere")) is Presence.UNSEEN
    process.kill()
    process.wait()
    assert system.presence(owner_id) is Presence.GONE


def test_while_its_tasks_are_being_ended_it_is_not_gone(
    child: tuple[subprocess.Popen[str], str],
) -> None:
    process, owner_id = child
    *_, pid, start, _ = owner_id.split("/")
    mark = system.supervisor_mark(int(pid), start)
    process.kill()
    process.wait()
    assert system.presence(owner_id) is Presence.GONE
    waiting = [sys.executable, "-c", "print(flush=True); input()", mark]
    pipe = subprocess.PIPE
    with subprocess.Popen(waiting, stdin=pipe, stdout=pipe) as at_work:
        assert at_work.stdout
        at_work.stdout.readline()
        assert system.presence(owner_id) is Presence.ENDING
        assert not system.proven_dead(owner_id)
        at_work.communicate(b"\n")
    assert system.presence(owner_id) is Presence.GONE


def test_another_process_under_the_same_number_is_not_that_owner() -> None:
    mine = system.new_owner_id()
    assert not system.proven_dead(mine)
    assert system.proven_dead(replaced(mine, 4, "1"))


@pytest.mark.parametrize(
    ("position", "part"),
    [(0, "another-machine"), (1, "00000000-another-boot"), (2, "4026531999")],
    ids=["machine", "boot", "pid namespace"],
)
def test_what_this_process_cannot_see_it_does_not_call_dead(
    child: tuple[subprocess.Popen[str], str], position: int, part: str
) -> None:
    process, owner_id = child
    process.kill()
    process.wait()
    assert not system.proven_dead(replaced(owner_id, position, part))


@pytest.mark.parametrize("garbage", ["", "/", "worker-1", "a/b/c/d/e/f", "\x00", "/" * 50, "ü/ü"])
def test_garbage_is_not_dead(garbage: str) -> None:
    assert not system.proven_dead(garbage)


@pytest.mark.parametrize("pid", ["", "-1", "1.5", "x", "../1"])
def test_a_pid_that_is_none_is_not_dead(pid: str) -> None:
    assert not system.proven_dead(replaced(system.new_owner_id(), 3, pid))


@pytest.mark.parametrize("pid", ["²", "9" * 5000])
def test_a_pid_that_only_looks_like_one_is_not_dead(pid: str) -> None:
    assert not system.proven_dead(replaced(system.new_owner_id(), 3, pid))


def test_a_cut_off_id_of_a_live_process_is_not_dead() -> None:
    assert not system.proven_dead(system.new_owner_id().rsplit("/", 2)[0])


def test_where_processes_cannot_be_seen_nobody_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    owner_id = system.new_owner_id()
    monkeypatch.setattr(system, "process_start", lambda pid: None)
    assert not system.proven_dead(owner_id)


def test_process_start_is_stable_and_ends_with_the_process(
    child: tuple[subprocess.Popen[str], str],
) -> None:
    process, owner_id = child
    first = system.process_start(process.pid)
    assert first == system.process_start(process.pid) == owner_id.split("/")[4]
    process.kill()
    process.wait()
    assert system.process_start(process.pid) is None


def test_update_ids_are_unique_also_after_a_fork() -> None:
    mine = [system.new_update_id() for _ in range(1000)]
    theirs = in_child(lambda: " ".join(system.new_update_id() for _ in range(1000))).split()
    mine += [system.new_update_id() for _ in range(1000)]
    assert len({*mine, *theirs}) == 3000


def test_owner_ids_differ_after_a_fork() -> None:
    mine, theirs = system.new_owner_id(), in_child(system.new_owner_id)
    assert mine.split("/")[3] != theirs.split("/")[3]


def test_run_ids_grow_and_pass_their_own_rule() -> None:
    made = [system.new_run_id() for _ in range(2000)]
    assert made == sorted(set(made))
    assert all(check_run_id(run_id) == run_id for run_id in made)


def test_run_ids_differ_after_a_fork_within_one_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "_run_ids", RunIds(lambda: 5, secrets.randbits))
    system.new_run_id()
    theirs = in_child(system.new_run_id)
    assert system.new_run_id() != theirs


def test_the_clock_is_in_utc_and_the_boot_clock_never_steps_back() -> None:
    clock = system.SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - clock.now()) < timedelta(seconds=5)
    ticks = [clock.boot_time() for _ in range(1000)]
    assert ticks == sorted(ticks)
    assert {tick.boot_id for tick in ticks} == {system.boot_id()}


def test_without_proc_a_boot_still_has_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "_BOOT_ID_FILE", tmp_path / "absent")
    assert system.boot_id().startswith(os.uname().nodename)
    assert system.boot_id() != ""
