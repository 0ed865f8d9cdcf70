"""Ending what a supervisor that was killed left behind. Without it only groups and marks tell whose
a process is, and nobody can say how its leader ended, so there is no grace to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenure.transports.supervisor import census, cgroups
from tenure.transports.supervisor.demise import Demise
from tenure.transports.supervisor.kinship import marked
from tenure.transports.supervisor.marks import Marks

_A_WHILE = 0.1


async def rescue(marks: Marks, folder: str, tasks: Iterable[int]) -> dict[int, list[int]]:
    """For each task what could not be ended: empty when everything is gone. ``folder``: where the
    groups of the tasks are, if they have some.

    Zombies say nothing here: they belong to the machine's first process, which may never reap. So
    a task is gone when two looks in a row found nothing of it.
    """
    loop = asyncio.get_running_loop()
    ending = {task: Demise(loop.time(), 0.0) for task in tasks}
    groups = {task: f"{folder}/{task}" for task in ending}
    for group in groups.values():
        cgroups.freeze(group)
    unseen: set[int] = set()
    left: dict[int, list[int]] = {}
    while ending:
        now = loop.time()
        try:
            everybody = census.everybody()
            families = marked(everybody, marks.whose)
            inside = {each: cgroups.processes_in(groups[each], everybody) for each in ending}
        except OSError:  # nothing left to look with
            await asyncio.sleep(_A_WHILE)  # noqa: TID251 - see below
            continue
        for task, demise in list(ending.items()):
            found = {process.pid: process for process in families.get(task, ())}
            found |= {pid: everybody[pid] for pid in inside[task] if pid in everybody}
            family = [process for process in found.values() if process.alive]
            for process, number in demise.step(now, family):
                census.send(process, number)
            if family:
                unseen.discard(task)
            elif task not in unseen:
                unseen.add(task)
                continue
            if demise.over(now, family, hidden=False) is not None:
                left[task] = [process.pid for process in family]
                cgroups.thaw(groups[task])
                del ending[task]
        next_look = min((demise.look_at for demise in ending.values()), default=0.0)
        await asyncio.sleep(max(0.0, next_look - loop.time()))  # noqa: TID251 - /proc tells nobody
    return left
