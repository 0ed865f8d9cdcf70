"""Who belongs to which task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenure.transports.supervisor.census import Process


def kin(
    census: Mapping[int, Process],
    root: int,
    leaders: Mapping[int, int],
    whose: Callable[[int], int | None],
) -> dict[int, list[Process]]:
    """The processes of each task: below its leader, or below an orphan that carries its mark.

    ``root`` is the supervisor, ``leaders`` the task of each leader that was not reaped yet. Only
    orphans are asked for their marks (``whose``): children of the supervisor that it did not
    start, and those whose parent vanished while we looked.
    """
    known: dict[int, int | None] = {root: None, **leaders}
    members: dict[int, list[Process]] = {}
    for process in census.values():
        task = _task_of(process, census, root, known, whose)
        if task is not None:
            members.setdefault(task, []).append(process)
    return members


def _task_of(
    process: Process,
    census: Mapping[int, Process],
    root: int,
    known: dict[int, int | None],
    whose: Callable[[int], int | None],
) -> int | None:
    line: list[int] = []
    task: int | None = None
    while len(line) <= len(census):  # numbers given anew while we looked could make a circle
        if process.pid in known:
            task = known[process.pid]
            break
        line.append(process.pid)
        above = census.get(process.parent)
        if process.parent == root or (above is None and process.parent):
            task = whose(process.pid)
            break
        if above is None:
            break
        process = above
    for pid in line:
        known[pid] = task
    return task


def marked(
    census: Mapping[int, Process], whose: Callable[[int], int | None]
) -> dict[int, list[Process]]:
    """The same when there is no supervisor any more: only the marks tell."""
    members: dict[int, list[Process]] = {}
    for process in census.values():
        task = whose(process.pid)
        if task is not None:
            members.setdefault(task, []).append(process)
    return members
