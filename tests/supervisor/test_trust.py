"""A runner that falls silent past its trust window: its tasks end without it."""

from __future__ import annotations

import asyncio
import signal
import time
from math import inf
from pathlib import Path

import pytest

from tenure.model.errors import Untrusted
from tenure.ports.execution import Command, TrustWindows
from tenure.transports.local import LocalTransport
from tenure.transports.routing import RoutingTransport, UnreachableTransport
from tenure.transports.streams import Ends, lay_pipes
from tenure.transports.supervisor import client
from tests.supervisor.hostile import UP, left_of, nothing_left
from tests.supervisor.promise import AT_LEISURE
from tests.supervisor.test_hostile_trees import new_run, runner
from tests.transports.keeping import HERE, Kept, running, sh, tasks

pytestmark = pytest.mark.slow


def of_run(run_id: str, script: str, *, grace: float = 5.0) -> Command:
    return sh(script, grace=grace, env={"TENURE_RUN_ID": run_id})


def soon(seconds: float = 0.3) -> float:
    return time.monotonic() + seconds


@pytest.mark.parametrize("name", ["setsid", "deaf daemon", "no environment", "no marks", "bomb"])
async def test_a_frozen_runner_has_no_tasks_and_hears_so_when_it_wakes(
    name: str, tmp_path: Path
) -> None:
    run_id = new_run()
    async with runner(name, run_id, tmp_path, trust=1.0) as (process, _):
        assert process.stdout is not None
        process.send_signal(signal.SIGSTOP)
        await asyncio.wait_for(nothing_left(run_id, tmp_path), AT_LEISURE)
        process.send_signal(signal.SIGCONT)
        said = await asyncio.wait_for(process.stdout.read(), AT_LEISURE)
        assert b"was ended: the lease of its run was not renewed in time" in said
        assert await process.wait() == 0


async def test_a_runner_that_keeps_saying_so_is_trusted(tmp_path: Path) -> None:
    run_id = new_run()
    async with runner("setsid", run_id, tmp_path, trust=0.5) as (process, _):
        assert process.stdout is not None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), 1.5)
        assert left_of(run_id, tmp_path)


async def test_only_what_belongs_to_the_run_ends(transport: LocalTransport) -> None:
    kept = [Kept() for _ in range(3)]
    transport.trust("run-late", soon(1000), margin=8)
    transport.trust("run-good", inf, margin=8)
    async with (
        running(transport, of_run("run-late", "echo up; exec sleep 25"), kept[0]) as late,
        running(transport, of_run("run-good", "echo up; exec sleep 25"), kept[1]) as good,
        running(transport, sh("echo up; exec sleep 25"), kept[2]) as without,
    ):
        for each in kept:
            await each.shows(UP)
        transport.trust("run-late", soon(0.1), margin=8)
        with pytest.raises(Untrusted, match="not renewed in time"):
            await late
        assert (await transport.run(HERE, of_run("run-good", "exit 3"), Kept())).code == 3
        assert not good.done()
        assert not without.done()


async def test_trust_that_is_given_again_counts_from_then(transport: LocalTransport) -> None:
    transport.trust("run-1", soon(0.2), margin=8)
    async with running(transport, of_run("run-1", "sleep 0.6; exit 3"), Kept()) as task:
        transport.trust("run-1", soon(20), margin=8)
        assert (await task).code == 3


async def test_trust_that_is_taken_away_ends_at_once(transport: LocalTransport) -> None:
    kept = Kept()
    transport.trust("run-1", soon(1000), margin=8)
    async with running(transport, of_run("run-1", "echo up; exec sleep 25"), kept) as task:
        await kept.shows(UP)
        transport.trust("run-1", soon(0), margin=8)
        with pytest.raises(Untrusted, match="not renewed in time"):
            await task


async def test_nothing_of_an_untrusted_run_is_started(
    transport: LocalTransport, tmp_path: Path
) -> None:
    transport.trust("run-1", soon(0), margin=8)
    command = of_run("run-1", f": > {tmp_path}/started")
    with pytest.raises(Untrusted, match="lease of its run was not renewed"):
        await transport.run(HERE, command, Kept())
    assert not (tmp_path / "started").exists()
    transport.trust("run-1", soon(20), margin=8)
    assert (await transport.run(HERE, command, Kept())).code == 0


async def test_a_forgotten_run_is_neither_trusted_nor_not(transport: LocalTransport) -> None:
    transport.trust("run-1", soon(0), margin=8)
    transport.forget("run-1")
    transport.forget("run-2")
    assert (await transport.run(HERE, of_run("run-1", "exit 3"), Kept())).code == 3


@pytest.mark.parametrize(("margin", "tidied"), [(1000.0, True), (2.0, False)])
async def test_the_grace_has_to_fit_into_the_margin(
    transport: LocalTransport, tmp_path: Path, margin: float, tidied: bool
) -> None:
    script = f"sleep 25 & trap 'sleep 0.3; : > {tmp_path}/tidied; exit' TERM; echo up; wait"
    kept = Kept()
    async with running(transport, of_run("run-1", script, grace=20), kept) as task:
        await kept.shows(UP)
        transport.trust("run-1", soon(0), margin=margin)
        with pytest.raises(Untrusted, match="not renewed in time"):
            await task
    assert (tmp_path / "tidied").exists() is tidied


async def test_from_another_thread_while_the_loop_is_busy(transport: LocalTransport) -> None:
    """A keeper with a thread of its own must not need the loop."""
    transport.trust("run-1", soon(2), margin=8)
    async with running(transport, of_run("run-1", "sleep 3; exit 3"), Kept()) as task:
        await transport.run(HERE, sh("true"), Kept())  # both have been sent
        thread = asyncio.get_running_loop().run_in_executor(
            None, transport.trust, "run-1", soon(20), 8
        )
        time.sleep(2.3)  # on purpose: the loop is busy until the first window is over
        await thread
        assert (await task).code == 3


async def test_from_another_thread_while_a_task_is_being_started(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said between the order and its way to the supervisor counts, too."""
    await transport.run(HERE, sh("true"), Kept())

    def prolong(*, feed: bool) -> tuple[Ends, Ends]:
        transport.trust("run-1", soon(20), margin=8)
        return lay_pipes(feed=feed)

    transport.trust("run-1", soon(0.5), margin=8)
    monkeypatch.setattr(client, "lay_pipes", prolong)
    assert (await transport.run(HERE, of_run("run-1", "sleep 1; exit 3"), Kept())).code == 3


async def test_routing_passes_it_on(transport: LocalTransport) -> None:
    routing = RoutingTransport({"local": transport}, otherwise=UnreachableTransport())
    assert isinstance(routing, TrustWindows)
    routing.trust("run-1", soon(0), margin=8)
    with pytest.raises(Untrusted):
        await transport.run(HERE, of_run("run-1", "true"), Kept())
    routing.forget("run-1")
    assert (await transport.run(HERE, of_run("run-1", "true"), Kept())).code == 0


async def test_a_cancel_while_it_is_ended_for_lack_of_trust(transport: LocalTransport) -> None:
    kept, before = Kept(), tasks()
    async with running(transport, of_run("run-1", "trap '' TERM; echo up; sleep 25"), kept) as task:
        await kept.shows(UP)
        transport.trust("run-1", soon(0), margin=1000)
        await transport.run(HERE, sh("true"), Kept())
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert tasks() <= before


async def test_a_runner_killed_while_its_tasks_are_ended_already(tmp_path: Path) -> None:
    run_id = new_run()
    async with runner("deaf", run_id, tmp_path, trust=0.6) as (process, _):
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.8)
        process.kill()
        await asyncio.wait_for(nothing_left(run_id, tmp_path), AT_LEISURE)
