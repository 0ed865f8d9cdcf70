"""Who may have started an orphan without marks, and when it has to end."""

from __future__ import annotations

import random

import pytest

from tenure.transports.supervisor.census import Process
from tenure.transports.supervisor.orphans import Orphans
from tenure.transports.supervisor.suspicion import Adopted, Fates, divide, must_end, suspects_of


def adopted(start: int, *suspects: int) -> Adopted:
    return Adopted(start, frozenset(suspects))


def test_only_who_was_there_before_is_suspected() -> None:
    tasks = {1: 10, 2: 20, 3: 30}
    assert suspects_of(9, tasks, []) == set()
    assert suspects_of(19, tasks, []) == {1}
    assert suspects_of(20, tasks, []) == {1, 2}, "the clock is coarse"


def test_an_older_orphan_may_have_started_it_for_whoever_started_that() -> None:
    others = [adopted(5, 7), adopted(15, 1, 8), adopted(25, 9)]
    assert suspects_of(20, {1: 10}, others) == {1, 7, 8}


HEARD = Fates({1, 2}, set(), {4})
UNHEARD = Fates({1, 2}, {1}, {4})


@pytest.mark.parametrize(
    ("suspects", "heard", "unheard"),
    [
        ((), False, False),
        ((1,), True, True),
        ((1, 2), True, True),
        ((3,), False, False),
        ((1, 3), False, True),
        ((2, 3), False, False),
        ((1, 4), False, False),
        ((1, 3, 4), False, False),
    ],
)
def test_it_ends_when_nobody_is_left_who_may_want_it(
    suspects: tuple[int, ...], heard: bool, unheard: bool
) -> None:
    """The first and second task are being ended, the third was released, the fourth goes on."""
    assert must_end(frozenset(suspects), HEARD) is heard
    assert must_end(frozenset(suspects), UNHEARD) is unheard


def test_what_one_task_is_known_for_is_its_own_and_the_rest_is_in_doubt() -> None:
    own, shared, doubtful = (Process(pid, 1, pid, pid, 0, True) for pid in (101, 102, 103))
    found = {
        frozenset((1,)): [own],
        frozenset((1, 2)): [shared],
        frozenset((1, 3)): [doubtful],
    }
    families, doubts = divide(found, HEARD)
    assert families == {1: [own, shared], 2: [shared]}
    assert doubts == {1: [doubtful], 3: [doubtful]}
    families, doubts = divide(found, UNHEARD)
    assert families == {1: [own, shared, doubtful], 2: [shared], 3: [doubtful]}
    assert doubts == {}


class World(Orphans):
    """Tasks and processes without a mark, and who started them in truth. A process is below a
    leader (negative), below another process, or below us (0)."""

    def __init__(self) -> None:
        super().__init__(self._ask)
        self.now = 0
        self.since: dict[int, int] = {}
        self.below: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.owner: dict[int, int] = {}
        self.numbers = iter(range(1, 1000))

    @property
    def leaders(self) -> set[int]:
        return {-task for task in self.since}

    def there(self) -> list[int]:
        return [pid for pid, parent in self.below.items() if parent == 0]

    def _listed(self) -> bytes:
        return b"".join(b"%d " % pid for pid in (*self.there(), *self.leaders))

    def _ask(self, pid: int, others: object) -> Adopted:
        start = self.start[pid]
        return Adopted(start, suspects_of(start, self.since, others))  # type: ignore[arg-type]

    def happen(self, what: str, luck: random.Random) -> None:
        parents = [*self.below, *self.leaders]
        if what == "spawn":
            self.note(self.leaders)
            self.since[next(self.numbers)] = self.now
        elif what == "tick":
            self.now += 1
        elif what == "fork" and parents:
            parent, pid = luck.choice(parents), next(self.numbers)
            self.below[pid] = parent
            self.start[pid] = self.now
            self.owner[pid] = -parent if parent < 0 else self.owner[parent]
        elif what == "die" and self.below:
            self._die(luck.choice(list(self.below)))
        elif what == "release" and self.since:
            task = luck.choice(list(self.since))
            self._abandon(-task)
            self.note(self.leaders)
            del self.since[task]
        elif what == "look":
            for pid in self.there():
                self.of(pid)

    def _die(self, pid: int) -> None:
        self._abandon(pid)
        if self.below.pop(pid) == 0:
            self.reaped(pid)

    def _abandon(self, parent: int) -> None:
        for child in [pid for pid, above in self.below.items() if above == parent]:
            self.below[child] = 0


@pytest.mark.parametrize("seed", range(20))
def test_who_did_it_is_always_among_the_suspects(seed: int) -> None:
    luck = random.Random(seed)
    events = ["spawn", "tick", "fork", "fork", "die", "release", "look"]
    for _ in range(50):
        world = World()
        for event in luck.choices(events, k=40):
            world.happen(event, luck)
        for pid in world.there():
            assert world.owner[pid] in world.of(pid).suspects


def test_a_task_that_left_nothing_behind_is_not_suspected_later() -> None:
    world, luck = World(), random.Random(0)
    world.happen("spawn", luck)
    world.happen("release", luck)
    for event in ("spawn", "fork", "die", "fork"):
        world.happen(event, luck)
    [task] = world.since
    [orphan] = world.below
    world._abandon(-task)
    assert world.of(orphan).suspects == {task}


def test_nobody_is_suspected_of_what_was_there_before_however_coarse_the_clock() -> None:
    world, luck = World(), random.Random(0)
    for event in ("spawn", "fork"):
        world.happen(event, luck)
    [first], [orphan] = world.since, world.below
    world._abandon(-first)
    world.happen("spawn", luck)
    assert world.of(orphan).suspects == {first}


def test_a_daemon_that_ended_and_left_nothing_is_not_suspected_later() -> None:
    world, luck = World(), random.Random(0)
    for event in ("spawn", "fork", "release", "die", "spawn", "fork"):
        world.happen(event, luck)
    [task], [orphan] = world.since, world.below
    world._abandon(-task)
    assert world.of(orphan).suspects == {task}
