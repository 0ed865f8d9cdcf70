"""The state of everything at one moment."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import Recovery
from tests.model.explorer.actors import Call, Operator, Worker
from tests.model.explorer.invariants import Ghost, Violation
from tests.model.explorer.messages import Message, Verb
from tests.model.explorer.rules import Bounds, Rules
from tests.model.explorer.store import RECONCILER, Desk, Store


class Weather(IntEnum):
    UP = 0
    DOWN = 1
    """No call gets through; time goes on."""
    BACK = 2
    """Up again for less than one renew interval."""


class Left(NamedTuple):
    """How much may still go wrong."""

    faults: int
    silences: int
    drains: int
    outages: int
    failovers: int


class World(NamedTuple):
    store: Store
    workers: tuple[Worker, ...]
    operator: Operator
    delayed: tuple[Message, ...]
    left: Left
    ghost: Ghost = Ghost()
    weather: Weather = Weather.UP
    replica: tuple[Store, Ghost] | None = None
    """What a failover would bring back: everything before the newest claim."""

    def put(self, worker: Worker) -> World:
        return self._replace(
            workers=tuple(worker if old.name == worker.name else old for old in self.workers)
        )


class Move(NamedTuple):
    line: str
    world: World
    violation: Violation | None = None


def first_world(rules: Rules, bounds: Bounds) -> World:
    """The run is about to be created, by its first owner or for whoever claims it."""
    embedded = bounds.recovery is Recovery.INTERRUPT
    names = ("worker-a", RECONCILER) if embedded else ("worker-a", "worker-b")
    left = Left(bounds.faults, bounds.silences, bounds.drains, bounds.outages, bounds.failovers)
    operator = Operator(done=not bounds.cancels)
    world = World(Store(), tuple(Worker(name) for name in names), operator, (), left)
    if embedded:
        creation = Message("worker-a", Verb.CREATE)
        return world.put(Worker("worker-a", claims=bounds.claims, call=Call(creation, sent=False)))
    born = Desk(rules, bounds).handle(Store(), Message("submitter", Verb.CREATE))
    return world._replace(store=born.store)


def still_granted(world: World, worker: Worker) -> bool:
    """Whether the lease that an answer tells of has been live ever since it was given."""
    run = world.store.run
    return (
        run is not None
        and world.store.live
        and (run.owner_id, run.fence) == (worker.name, worker.fence)
    )


def still_trusted(world: World, run: RunSnapshot) -> bool:
    """The one rule of time: while its owner trusts it, a lease does not expire."""
    return any(
        worker.trust and not worker.deluded and worker.fence == run.fence
        for worker in world.workers
        if worker.name == run.owner_id
    )


def spend_fault(world: World) -> World:
    return world._replace(left=world.left._replace(faults=world.left.faults - 1))
