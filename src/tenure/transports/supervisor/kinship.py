"""Who belongs to which task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.suspicion import Families, Suspects

_NOBODY: Suspects = frozenset()


def kin(
    census: Mapping[int, Process],
    root: int,
    leaders: Mapping[int, int],
    whose: Callable[[Process], Suspects],
) -> dict[Suspects, list[Process]]:
    """Processes by the tasks they may belong to: that of the leader they are below, or those of the
    orphan they are below (``whose``).

    ``root`` is the supervisor, ``leaders`` the task of each leader that was not reaped yet. Orphans
    are children of the supervisor that it did not start, and whose parent vanished while we looked.
    """
    known: dict[int, Suspects] = {root: _NOBODY}
    known.update((pid, frozenset((task,))) for pid, task in leaders.items())
    members: dict[Suspects, list[Process]] = {}
    for process in census.values():
        suspects = _suspects_of(process, census, root, known, whose)
        if suspects:
            members.setdefault(suspects, []).append(process)
    return members


def _suspects_of(
    process: Process,
    census: Mapping[int, Process],
    root: int,
    known: dict[int, Suspects],
    whose: Callable[[Process], Suspects],
) -> Suspects:
    line: list[int] = []
    suspects = _NOBODY
    while len(line) <= len(census):  # numbers given anew while we looked could make a circle
        if process.pid in known:
            suspects = known[process.pid]
            break
        line.append(process.pid)
        above = census.get(process.parent)
        if process.parent == root or (above is None and process.parent):
            suspects = whose(process)
            break
        if above is None:
            break
        process = above
    for pid in line:
        known[pid] = suspects
    return suspects


def marked(census: Mapping[int, Process], whose: Callable[[int], int | None]) -> Families:
    """The same when there is no supervisor any more: only the marks tell."""
    members: Families = {}
    for process in census.values():
        task = whose(process.pid)
        if task is not None:
            members.setdefault(task, []).append(process)
    return members
