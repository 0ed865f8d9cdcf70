"""Orphans that lost their marks, and still name the task or the run they came from."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.transports.supervisor.suspicion import Adopted, suspects_in
from tenure.transports.supervisor.wardship import Wardship
from tests.supervisor.test_wardship import (
    SECOND,
    Started,
    Told,
    boot_time,
    children,
    end,
    let_go,
    order,
)
from tests.supervisor.test_wardship import told as told
from tests.supervisor.test_wardship import wards as wards

pytestmark = pytest.mark.slow


def start(
    wards: Wardship, number: int, run: str, task: str | None = None, *, later: int = 0
) -> Started:
    begun, before = boot_time() + later, set(children())
    wanted = order()
    wanted.run = run.encode()
    wanted.env |= {b"TENURE_RUN_ID": run.encode(), b"TENURE_TASK_ID": (task or run).encode()}
    with Path("/dev/null").open("wb") as nowhere:
        wards.spawn(number, wanted, [nowhere.fileno()] * 2, begun)
    [leader] = set(children()) - before
    return Started(begun, leader)


@contextmanager
def orphan(*, task: str = "", run: str = "") -> Iterator[int]:
    """It has no marks, and begins before anything that is started later."""
    env = {"TENURE_TASK_ID": task, "TENURE_RUN_ID": run}
    named = {name: value for name, value in env.items() if value}
    pid = os.posix_spawn("/bin/sleep", ["sleep", "25"], named, setsid=True)
    try:
        yield pid
    finally:
        if pid in children():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_who_names_a_task_ends_with_it_and_not_with_others(wards: Wardship, told: Told) -> None:
    start(wards, 1, "a", "a:1")
    start(wards, 2, "a", "a:2")
    with orphan(task="a:1", run="a") as daemon:
        assert end(wards, told, 2) == []
        assert daemon in children()
        assert end(wards, told, 1) == []
        assert daemon not in children()


def test_who_names_a_run_ends_with_it_whatever_else_runs(wards: Wardship, told: Told) -> None:
    start(wards, 1, "a")
    start(wards, 2, "b")
    with orphan(run="a") as daemon:
        assert end(wards, told, 2) == []
        assert daemon in children()
        assert end(wards, told, 1) == []
        assert daemon not in children()


def test_who_names_a_run_is_in_doubt_until_all_tasks_of_it_end(wards: Wardship, told: Told) -> None:
    start(wards, 1, "a", "a:1")
    start(wards, 2, "a", "a:2")
    with orphan(run="a") as daemon:
        assert end(wards, told, 1) == [daemon]
        assert daemon in children()
        assert end(wards, told, 2) == []
        assert daemon not in children()


def test_a_daemon_of_another_run_casts_no_doubt(wards: Wardship, told: Told) -> None:
    first = start(wards, 1, "b")
    with orphan() as nameless, orphan(run="b") as named:
        let_go(wards, 1, first)
        start(wards, 2, "a")
        with orphan(run="a") as daemon:
            assert end(wards, told, 2) == []
            assert daemon not in children()
        assert {nameless, named} <= set(children())


def test_a_daemon_of_an_earlier_step_stays_and_so_does_what_it_may_have_started(
    wards: Wardship, told: Told
) -> None:
    first = start(wards, 1, "a", "a:1")
    with orphan(task="a:1", run="a") as daemon:
        let_go(wards, 1, first)
        start(wards, 2, "a", "a:2")
        with orphan(run="a") as another:
            assert end(wards, told, 2) == [another]
            assert {daemon, another} <= set(children())


def test_a_daemon_of_an_earlier_command_of_the_same_task_is_not_the_later_ones(
    wards: Wardship, told: Told
) -> None:
    first = start(wards, 1, "a", "a:1")
    with orphan(task="a:1", run="a") as daemon:
        let_go(wards, 1, first)
        start(wards, 2, "a", "a:1", later=SECOND)
        assert end(wards, told, 2) == []
        assert daemon in children()


def test_a_run_that_nobody_knows_tells_nothing(wards: Wardship, told: Told) -> None:
    """Somebody may have made it up: then it is judged like one that says nothing."""
    start(wards, 1, "a")
    with orphan(task="x", run="x") as daemon:
        assert end(wards, told, 1) == []
        assert daemon not in children()


def test_released_tasks_of_unknown_runs_stay_under_suspicion() -> None:
    elders = [
        Adopted(5, frozenset((7,)), b"a"),
        Adopted(5, frozenset((3, 8)), b""),
        Adopted(5, frozenset((9,)), b"b"),
        Adopted(15, frozenset((6,)), b"a"),
    ]
    assert suspects_in(b"a", 10, {1: 4, 2: 11}, [3], elders) == {1, 7, 8}
