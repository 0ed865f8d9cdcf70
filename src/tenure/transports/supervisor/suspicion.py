"""Who may have started an orphan, and whether it has to end. Pure.

A process that carries a mark is its task's. One that lost all of them (``su - user`` empties the
environment, and PAM sets limits anew) can only have come from somebody who was there before it:

- a task that had begun by then and was not released;
- an orphan that is older: then it was started by whoever may have started that one.

If it still names its run (``names``), nobody of another run is suspected.

So the suspects are few, usually one. It ends when **all** of them are being ended, for then it is
one of theirs whosever it is. As long as one of them goes on, or was released (what that left
running is a daemon somebody wanted), it is in **doubt**: nobody touches it, and no suspect is said
to be gone. Where nobody could be told of a doubt, because the runner is gone or not trusted any
more, a task beside its successor's is the greater harm: then those that were released do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tenure.transports.supervisor.census import Process

Suspects = frozenset[int]
"""Numbers of tasks."""
RELEASED = 0
"""Stands for a task that is not known any more."""
Families = dict[int, list[Process]]


class Adopted:
    """An orphan: when it began, who may have started it, and of which run that was, if it is
    known (else nothing)."""

    __slots__ = ("run", "start", "suspects")

    def __init__(self, start: int, suspects: Suspects, run: bytes = b"") -> None:
        self.start = start
        self.suspects = suspects
        self.run = run


def suspects_of(start: int, tasks: Mapping[int, int], elders: Iterable[Adopted]) -> Suspects:
    """Of an orphan without a mark that began at ``start``. ``tasks``: when each task began that
    was not released; ``elders``: the other orphans, also those that ended a moment ago. All by the
    coarse clock of ``/proc``, so who began at the same moment is suspected too."""
    possible = {task for task, since in tasks.items() if since <= start}
    for elder in elders:
        if elder.start <= start:
            possible |= elder.suspects
    return frozenset(possible)


def suspects_in(
    run: bytes,
    start: int,
    tasks: Mapping[int, int],
    others: Collection[int],
    elders: Iterable[Adopted],
) -> Suspects:
    """The same of one that names its ``run``: ``tasks`` are those of that run, ``others`` those of
    other runs. What was released counts unless it is known to be another run's."""
    related = [elder for elder in elders if elder.run in (run, b"")]
    return suspects_of(start, tasks, related).difference(others)


class Fates:
    """``doomed``: tasks that are being ended as a whole; ``unheard``: those of them of which nobody
    may hear how it went; ``going_on``: the others that were not released."""

    __slots__ = ("doomed", "going_on", "unheard")

    def __init__(self, doomed: set[int], unheard: set[int], going_on: set[int]) -> None:
        self.doomed = doomed
        self.unheard = unheard
        self.going_on = going_on


def must_end(suspects: Suspects, fates: Fates) -> bool:
    spared = suspects - fates.doomed
    if not spared:
        return bool(suspects)
    return not suspects.isdisjoint(fates.unheard) and spared.isdisjoint(fates.going_on)


def divide(found: Mapping[Suspects, list[Process]], fates: Fates) -> tuple[Families, Families]:
    """What is to end with each task, and what each task is suspected of in vain."""
    families: Families = {}
    doubts: Families = {}
    for suspects, processes in found.items():
        certain = len(suspects) == 1 or must_end(suspects, fates)
        for task in suspects:
            (families if certain else doubts).setdefault(task, []).extend(processes)
    return families, doubts
