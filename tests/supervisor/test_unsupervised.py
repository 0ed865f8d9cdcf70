"""Systems that do not let a supervisor do all it could."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tenure.model.errors import StillRunning
from tenure.transports import new_transport
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor import client
from tenure.transports.supervisor.cgroups import own_group
from tests.supervisor.hostile import UP, left_of, tree
from tests.supervisor.supervising import (
    MAY_NOT_SIGNAL,
    NO_CGROUPS,
    begin_with,
    supervisors,
)
from tests.supervisor.test_hostile_trees import new_run
from tests.transports.keeping import HERE, Kept, running, runs, sh, tasks

pytestmark = pytest.mark.slow

QUICKLY = "from tenure.transports.supervisor import processes\nprocesses.KILL_TIMEOUT_S = 0.3"


async def test_where_nobody_may_be_a_subreaper_tasks_are_our_own_children(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin_with(
        monkeypatch,
        "from tenure.transports.supervisor import program\nprogram._SET_CHILD_SUBREAPER = 10_000",
    )
    assert (await transport.run(HERE, sh("exit 3"), Kept())).code == 3
    assert supervisors() == set()
    assert (await transport.run(HERE, sh("exit 4"), Kept())).code == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, "once"
    assert "cannot become a subreaper: Invalid argument" in told[0]


async def test_what_may_not_be_signalled_is_reported(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with another user's processes."""
    begin_with(monkeypatch, MAY_NOT_SIGNAL + NO_CGROUPS + QUICKLY)
    kept, script = Kept(), "setsid sleep 25 & echo $!; echo $$; exec sleep 25"
    async with running(transport, sh(script, grace=0.1), kept) as task:
        family = await kept.numbers(2)
        task.cancel()
        asyncio.get_running_loop().call_later(0.2, task.cancel)
        with pytest.raises(StillRunning, match="could not be killed") as refused:
            await task
        assert all(str(pid) in str(refused.value) for pid in family)
        assert all(map(runs, family))
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        while tasks() & set(family):  # its supervisor still takes note of their end
            await asyncio.sleep(0.01)


async def test_a_control_group_kills_what_signals_may_not(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where we may make one; elsewhere it is reported, as above."""
    home = own_group()
    allowed = home is not None and os.access(home, os.W_OK)
    begin_with(monkeypatch, MAY_NOT_SIGNAL + QUICKLY)
    run_id, kept = new_run(), Kept()
    async with running(transport, tree("deaf daemon", run_id, tmp_path, 0.1), kept) as task:
        await kept.shows(UP)
        task.cancel()
        with pytest.raises(asyncio.CancelledError if allowed else StillRunning):
            await task
        assert bool(left_of(run_id, tmp_path)) is not allowed
        [supervisor] = supervisors()
    for pid in left_of(run_id, tmp_path):
        os.kill(pid, signal.SIGKILL)
    await transport.close()
    if home is not None:
        assert not list(Path(home).glob(f"tenure-{supervisor}-*"))


@pytest.mark.parametrize(
    ("where", "what"),
    [("sys.platform", "darwin"), ("sys.executable", ""), ("sys.frozen", True)],
)
def test_where_there_can_be_none_none_is_tried(
    monkeypatch: pytest.MonkeyPatch, where: str, what: object
) -> None:
    client.possible.cache_clear()
    monkeypatch.setattr(where, what, raising=False)
    assert not client.possible()
    monkeypatch.undo()
    client.possible.cache_clear()
    assert client.possible()


@pytest.mark.parametrize("supervised", [False, True])
async def test_what_reaches_all_hosts_supervises_if_it_shall(supervised: bool) -> None:
    transport, kept = new_transport(supervised=supervised), Kept()
    try:
        await transport.run(HERE, sh("ps -o ppid= -p $$"), kept)
        assert {int(kept.stdout)} == (supervisors() or {os.getpid()})
        assert bool(supervisors()) is supervised
    finally:
        await transport.close()
