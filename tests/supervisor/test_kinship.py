"""Who belongs to which task, against the plainest way to find out."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.kinship import kin, marked
from tenure.transports.supervisor.suspicion import Suspects

ROOT = 100
Whose = TypeVar("Whose")


def process(pid: int, parent: int) -> Process:
    return Process(pid, parent, pid, pid, 0, True)


def numbers(members: dict[Whose, list[Process]]) -> dict[Whose, set[int]]:
    return {whose: {each.pid for each in family} for whose, family in members.items()}


parents = st.dictionaries(
    st.integers(101, 130), st.sampled_from([0, 1, ROOT, 999]) | st.integers(101, 130)
)
tasks = st.dictionaries(st.integers(101, 130), st.integers(1, 5))
suspects = st.dictionaries(st.integers(101, 130), st.frozensets(st.integers(1, 5)))
NOBODY: Suspects = frozenset()


def expected(
    parent_of: dict[int, int], leaders: dict[int, int], marks: dict[int, Suspects], pid: int
) -> Suspects:
    """Walk up; ask who has no parent that we know of, or is the supervisor's child."""
    seen: set[int] = set()
    while pid not in seen:
        seen.add(pid)
        if pid in leaders:
            return frozenset((leaders[pid],))
        parent = parent_of[pid]
        if parent == ROOT or (parent and parent != 1 and parent not in parent_of):
            return marks.get(pid, NOBODY)
        if parent in (0, 1):
            return NOBODY
        pid = parent
    return NOBODY


@given(parents, tasks, suspects)
def test_against_a_plain_walk(
    parent_of: dict[int, int], leaders: dict[int, int], marks: dict[int, Suspects]
) -> None:
    census = {1: process(1, 0), ROOT: process(ROOT, 1)}
    census.update({pid: process(pid, parent) for pid, parent in parent_of.items()})
    found = numbers(kin(census, ROOT, leaders, lambda orphan: marks.get(orphan.pid, NOBODY)))
    wanted: dict[Suspects, set[int]] = {}
    for pid in parent_of:
        whose = expected(parent_of, leaders, marks, pid)
        if whose:
            wanted.setdefault(whose, set()).add(pid)
    assert found == wanted


def test_only_orphans_are_asked() -> None:
    census = {each.pid: each for each in (process(ROOT, 1), process(5, ROOT), process(6, 5))}
    asked: list[int] = []

    def whose(orphan: Process) -> Suspects:
        asked.append(orphan.pid)
        return frozenset((7, 8))

    assert numbers(kin(census, ROOT, {}, whose)) == {frozenset((7, 8)): {5, 6}}
    assert asked == [5]
    asked.clear()
    assert numbers(kin(census, ROOT, {5: 1}, whose)) == {frozenset((1,)): {5, 6}}
    assert asked == []


def test_without_a_supervisor_the_marks_alone_tell() -> None:
    census = {each.pid: each for each in (process(5, 1), process(6, 5), process(7, 1))}
    assert numbers(marked(census, {5: 1, 7: 1}.get)) == {1: {5, 7}}
