"""Each task has a control group of its own, from its start until nobody is in it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tenure.model.errors import TransportError
from tenure.ports.execution import LocalTasks
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor import cgroups
from tenure.transports.supervisor.client import SupervisedStarter
from tenure.transports.supervisor.processes import look_at
from tests.supervisor.grouping import HOME, allowed, folder_of, folders_of, group_in, group_of
from tests.supervisor.hostile import GRACE, MARKLESS, UP, left_of, tree
from tests.supervisor.promise import AT_LEISURE
from tests.supervisor.supervising import begin_with, supervisors
from tests.supervisor.test_doubts import Trees
from tests.supervisor.test_hostile_trees import new_run
from tests.transports.keeping import HERE, Kept, running, runs, sh

pytestmark = pytest.mark.slow

WHERE = "cat /proc/self/cgroup"


async def where(transport: LocalTransport) -> str:
    """The group of a new task."""
    kept = Kept()
    await transport.run(HERE, sh(WHERE), kept)
    return group_in(kept.stdout.decode())


async def until_removed(*folders: Path) -> None:
    async with asyncio.timeout(AT_LEISURE):
        while any(map(Path.exists, folders)):
            await asyncio.sleep(0.01)


async def remove(group: Path) -> None:
    """As soon as nobody is in it any more."""
    async with asyncio.timeout(AT_LEISURE):
        while "populated 1" in (group / "cgroup.events").read_text():
            await asyncio.sleep(0.01)
    cgroups.remove(str(group))


# -- where tasks are born -------------------------------------------------------------------------


async def test_a_task_is_born_in_a_group_of_its_own(transport: LocalTransport) -> None:
    groups = [await where(transport) for _ in range(3)]
    [supervisor] = supervisors()
    ours = group_of().rstrip("/")
    if allowed():
        maker = look_at(supervisor)
        assert maker is not None
        name = f"{ours}/tenure-{supervisor}-{maker.start}-tasks"
        assert groups == [f"{name}/{number}" for number in (1, 2, 3)]
    else:
        assert set(groups) == {group_of()}


async def test_no_two_tasks_ever_share_one(transport: LocalTransport) -> None:
    groups: list[str] = []
    for _ in range(5):
        groups += await asyncio.gather(*(where(transport) for _ in range(20)))
    assert len(set(groups)) == (100 if allowed() else 1)


async def test_groups_go_with_their_tasks_and_the_last_with_the_supervisor(
    transport: LocalTransport,
) -> None:
    kept = Kept()
    async with running(transport, sh("echo $$; exec sleep 25"), kept):
        [leader] = await kept.numbers(1)
        theirs = folder_of(group_of(leader))
        assert theirs.is_dir()
        over = [folder_of(await where(transport)) for _ in range(3)]
        if allowed():
            await until_removed(*over)
            assert theirs.is_dir()
    [supervisor] = supervisors()
    await transport.close()
    assert folders_of(supervisor) == []


async def test_what_a_killed_supervisor_left_the_next_one_removes(
    transport: LocalTransport,
) -> None:
    await where(transport)
    [killed] = supervisors()
    kept = Kept()
    async with running(transport, sh("echo $$; exec sleep 25"), kept) as task:
        await kept.numbers(1)
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(TransportError, match="ended with its supervisor"):
            await task
    assert allowed() is (await where(transport) != group_of())
    assert folders_of(killed) == []


async def test_without_its_supervisor_an_orphan_is_known_by_its_group(
    transport: LocalTransport, tmp_path: Path
) -> None:
    """Elsewhere nobody finds it then."""
    run_id, kept = new_run(), Kept()
    async with running(transport, tree("no marks", run_id, tmp_path), kept) as task:
        await kept.shows(UP)
        [supervisor] = supervisors()
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(TransportError, match="ended with its supervisor"):
            await task
    left = left_of(run_id, tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (left == set()) is allowed()


async def test_a_program_that_cannot_be_started_leaves_no_group(transport: LocalTransport) -> None:
    with pytest.raises(TransportError):
        await transport.run(HERE, sh("true", cwd="/no/such/folder"), Kept())
    [supervisor] = supervisors()
    over = [folder / "1" for folder in folders_of(supervisor)]
    await where(transport)
    await until_removed(*over)


# -- whose an orphan is ---------------------------------------------------------------------------


async def test_an_orphan_without_marks_ends_with_its_own_task_while_another_runs(
    transport: LocalTransport, tmp_path: Path
) -> None:
    trees = Trees(tmp_path)
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, [tree("no marks", *run) for run in trees.runs])
        for number in (1, 0) if allowed() else ():
            others = trees.left(1 - number)
            assert len(trees.left(number)) > 1
            await trees.cancel(number)
            assert trees.tasks[number].cancelled(), "confirmed, and nobody is in doubt"
            assert trees.left(number) == set()
            assert trees.left(1 - number) == others


async def test_a_relay_without_marks_stands_still_and_ends_while_another_runs(
    transport: LocalTransport, tmp_path: Path
) -> None:
    trees, name = Trees(tmp_path), "relay without marks"
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, [tree(name, *run) for run in trees.runs])
        for number in (1, 0) if allowed() else ():
            await trees.cancel(number)
            assert trees.tasks[number].cancelled()
            assert trees.left(number) == set()


async def test_what_left_the_group_is_still_known_by_its_marks(
    transport: LocalTransport, tmp_path: Path
) -> None:
    """Root can."""
    leave = f"echo $$ > {HOME}/cgroup.procs; " if allowed() else ""
    script = f"(setsid sh -c '{leave}cat /proc/self/cgroup; echo up; exec sleep 25' &); sleep 25"
    run_id, kept = new_run(), Kept()
    command = sh(script, env={"TENURE_RUN_ID": run_id}, cwd=str(tmp_path), grace=GRACE)
    async with running(transport, sh("exec sleep 25"), Kept()):
        async with running(transport, command, kept) as task:
            await kept.shows(UP)
            assert group_in(kept.stdout.decode()) == group_of()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        assert left_of(run_id, tmp_path) == set()


async def test_groups_that_a_task_makes_in_its_own_are_its_own(
    transport: LocalTransport, tmp_path: Path
) -> None:
    nested = f"""
        group={HOME}/$(sed -n s/^0:://p /proc/self/cgroup)/nested
        mkdir $group; echo threaded > $group/cgroup.type; echo $$ > $group/cgroup.procs"""
    script = f"{nested if allowed() else ''}\n{MARKLESS} & sleep 25"
    trees = Trees(tmp_path)
    commands = [
        sh(script, env={"TENURE_RUN_ID": run}, cwd=str(folder), grace=GRACE)
        for run, folder in trees.runs
    ]
    async with AsyncExitStack() as scope:
        await trees.stand(transport, scope, commands)
        [supervisor] = supervisors()
        for number in (1, 0) if allowed() else ():
            [folder] = folders_of(supervisor)
            assert (folder / f"{number + 1}" / "nested").is_dir()
            await trees.cancel(number)
            assert trees.tasks[number].cancelled()
            assert trees.left(number) == set()
    await transport.close()
    assert folders_of(supervisor) == []


# -- daemons --------------------------------------------------------------------------------------


async def test_a_daemon_keeps_the_group_of_its_task_until_it_ends(
    transport: LocalTransport,
) -> None:
    kept = Kept()
    await transport.run(HERE, sh("setsid sleep 25 >/dev/null 2>&1 & echo $!"), kept)
    [daemon] = await kept.numbers(1)
    theirs = group_of(daemon)
    async with running(transport, sh("echo $$; exec sleep 25"), kept) as task:
        task.cancel()
        await asyncio.wait({task})
    later = [await where(transport) for _ in range(5)]
    assert runs(daemon)
    assert group_of(daemon) == theirs
    assert (theirs not in later) is allowed()
    os.kill(daemon, signal.SIGKILL)
    if allowed():
        await until_removed(folder_of(theirs))


async def test_a_daemon_keeps_its_group_when_the_supervisor_goes(
    transport: LocalTransport,
) -> None:
    kept = Kept()
    await transport.run(HERE, sh("setsid sleep 25 >/dev/null 2>&1 & echo $!"), kept)
    [daemon] = await kept.numbers(1)
    theirs = group_of(daemon)
    [first] = supervisors()
    await transport.close()
    assert await where(transport) != theirs or not allowed()
    assert runs(daemon)
    assert group_of(daemon) == theirs
    os.kill(daemon, signal.SIGKILL)
    while runs(daemon):
        await asyncio.sleep(0.01)
    await transport.close()
    await where(transport)
    assert folders_of(first) == []


# -- homes ----------------------------------------------------------------------------------------

PATHS = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
INNER = """
import asyncio
from pathlib import Path
from tenure.transports.local import LocalTransport
from tenure.transports.supervisor.cgroups import own_group
from tenure.transports.supervisor.client import SupervisedStarter
from tests.supervisor.test_task_groups import where

async def main():
    transport = LocalTransport(SupervisedStarter())
    print(await where(transport))
    if own_group() is not None:
        print(Path(own_group(), "cgroup.type").read_text(), end="")
    await transport.close()

asyncio.run(main())
"""


async def test_a_runner_within_a_task_has_groups_for_its_tasks(
    transport: LocalTransport, tmp_path: Path
) -> None:
    program = tmp_path / "inner.py"
    program.write_text(INNER)
    kept = Kept()
    await transport.run(HERE, sh(f"{sys.executable} {program}; {WHERE}", env=PATHS), kept)
    inner, outer = kept.stdout.decode().split()[0], group_in(kept.stdout.decode())
    if allowed():
        assert inner.startswith(f"{outer}/tenure-")
        assert inner.endswith("-tasks/1")
    else:
        assert inner == outer
    [supervisor] = supervisors()
    await transport.close()
    assert folders_of(supervisor) == []


async def test_where_our_own_group_is_no_root_it_stays_what_it_is(
    transport: LocalTransport, tmp_path: Path
) -> None:
    """Others may have groups in it which must remain usable."""
    if not allowed():
        assert await where(transport) == group_of()
        return
    home = Path(f"{HOME}/tests-{os.getpid()}")
    home.mkdir()
    program = tmp_path / "inner.py"
    program.write_text(f"open('{home}/cgroup.procs', 'w').write('0')\n{INNER}")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, program), env={**os.environ, **PATHS}, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(process.communicate(), AT_LEISURE)
        inner, kind = said.decode().split()
        assert inner.startswith(f"{group_of().rstrip('/')}/{home.name}/tenure-")
        assert inner.endswith("-tasks/1")
        assert kind == "domain"
        assert [path for path in home.iterdir() if path.is_dir()] == []
    finally:
        await remove(home)


async def test_a_supervisor_that_is_left_alone_leaves_its_own_group_and_removes_it(
    transport: LocalTransport, tmp_path: Path
) -> None:
    if not allowed():
        assert await where(transport) == group_of()
        return
    home = Path(f"{HOME}/tests-{os.getpid()}-alone")
    home.mkdir()
    program = tmp_path / "inner.py"
    endless = INNER.replace("await transport.close()", "await asyncio.Event().wait()")
    program.write_text(f"open('{home}/cgroup.procs', 'w').write('0')\n{endless}")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", program),
            env={**os.environ, **PATHS},
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        for _ in range(2):
            assert await asyncio.wait_for(process.stdout.readline(), AT_LEISURE)
        made = [path for path in home.iterdir() if path.is_dir()]
        process.kill()
        await process.wait()
        assert len(made) == 1
        await until_removed(*made)
    finally:
        await remove(home)


@pytest.mark.parametrize("home", ["/proc", "a folder", "a group that can hold nothing"])
async def test_where_groups_are_refused_tasks_run_without(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    made: list[Path] = []
    if home == "a group that can hold nothing" and allowed():
        # Below a threaded group, and not threaded itself.
        made = [Path(f"{HOME}/tests-{os.getpid()}"), Path(f"{HOME}/tests-{os.getpid()}/below")]
        made[0].mkdir()
        (made[0] / "cgroup.type").write_text("threaded")
        made[1].mkdir()
    place = str(made[-1] if made else "/proc" if home == "/proc" else tmp_path)
    begin_with(
        monkeypatch,
        f"from tenure.transports.supervisor import program\nprogram.own_group = lambda: {place!r}",
    )
    try:
        assert await where(transport) == group_of()
        run_id, kept = new_run(), Kept()
        async with running(transport, tree("deaf daemon", run_id, tmp_path, 0.1), kept) as task:
            await kept.shows(UP)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
        assert left_of(run_id, tmp_path) == set()
        await transport.close()
        assert place == "/proc" or list(Path(place).glob("tenure-*")) == []
    finally:
        for folder in reversed(made):
            folder.rmdir()


async def test_who_needs_no_groups_gets_none() -> None:
    transport = LocalTransport(SupervisedStarter(LocalTasks(groups=False)))
    try:
        assert await where(transport) == group_of()
        [supervisor] = supervisors()
        assert folders_of(supervisor) == []
    finally:
        await transport.close()
