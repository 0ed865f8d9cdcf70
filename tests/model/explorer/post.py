"""Sending and hearing: what can become of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure.model.update import Fencing
from tests.model.explorer import actors
from tests.model.explorer.actors import Call, Phase, Worker
from tests.model.explorer.invariants import (
    Step,
    Violation,
    abandoned,
    check_renewal,
    check_start,
    check_step,
    remember,
)
from tests.model.explorer.messages import Answer, Heard, Message, Verb
from tests.model.explorer.rules import Bounds, Rules
from tests.model.explorer.store import Desk
from tests.model.explorer.world import Move, World, spend_fault, still_granted


class Handled(NamedTuple):
    """A message met the store."""

    line: str
    world: World
    answer: Answer
    violation: Violation | None


class Post:
    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self._rules = rules
        self._bounds = bounds
        self._desk = Desk(rules, bounds)

    def sends(
        self, world: World, worker: Worker, message: Message, again: str = "", ended: bool = False
    ) -> Iterator[Move]:
        ends = "'s task ends; it" if ended else ""
        prefix = f"{worker.name}{ends} sends {message}{again}"
        line, after, answer, violation = self.handled(prefix, world, message)
        yield self.heard(line, after, worker, message, answer, violation, bool(again))
        if not world.left.faults:
            return
        if answer.heard is Heard.OK:
            waiting = after.put(worker._replace(call=Call(message, answer)))
            yield Move(f"{line}, answer lost or late", spend_fault(waiting), violation)
        waiting = world.put(worker._replace(call=Call(message)))
        yield self.delays(prefix, waiting, message)

    def delays(self, prefix: str, world: World, message: Message) -> Move:
        delayed = tuple(sorted((*world.delayed, message), key=lambda each: each.id))
        return Move(f"{prefix} -> lost or late", spend_fault(world)._replace(delayed=delayed))

    def handled(self, prefix: str, world: World, message: Message) -> Handled:
        handled = self._desk.handle(world.store, message)
        wrote = handled.wrote(world.store)
        step = Step(message, world.store, handled.store, handled.answer, wrote)
        ghost = remember(world.ghost, step)
        violation = check_step(step, world.ghost, world.workers)
        line = f"{prefix} -> {_outcome(step)}"
        after = world._replace(store=handled.store, ghost=ghost)
        if self._bounds.failovers and wrote and message.verb is Verb.CLAIM:
            after = after._replace(replica=(world.store, world.ghost))
        return Handled(line, after, handled.answer, violation)

    def heard(
        self,
        line: str,
        world: World,
        worker: Worker,
        message: Message,
        answer: Answer,
        violation: Violation | None = None,
        resent: bool = False,
    ) -> Move:
        violation = violation or (None if self._rules.owner_rebases else abandoned(worker, answer))
        after = actors.hear(worker, message, answer, self._rules)
        if answer.view is not None and answer.heard is Heard.OK:
            deluded = resent and not self._rules.trust_from_first_sending
            trust = deluded or still_granted(world, after)
            after = after._replace(trust=trust, deluded=deluded)
        return self._maybe_starts(line, world.put(after), after, violation)

    def _maybe_starts(
        self, line: str, world: World, worker: Worker, violation: Violation | None
    ) -> Move:
        task = worker.task
        idle = worker.phase is Phase.HOLDING and not (worker.running or worker.result)
        cancel = worker.view is not None and worker.view.cancel
        if task is None or not idle or cancel or not worker.may_start(self._rules):
            return Move(line, world, violation)
        violation = violation or check_start(worker, task, world.workers, world.ghost)
        started = world.put(worker._replace(running=True))
        return Move(f"{line}; it starts task {task}", started, violation)

    def renews(self, world: World, worker: Worker) -> Iterator[Move]:
        renewed = self._desk.renew(world.store, Fencing(worker.name, worker.fence))
        line = f"{worker.name} renews -> {renewed.answer.heard}"
        violation = check_renewal(worker, renewed.answer, world.ghost)
        if renewed.answer.heard is not Heard.OK:
            yield Move(line, world.put(worker.lost()), violation)
            return
        view = worker.view
        assert view is not None
        trusting = worker._replace(
            trust=True,
            deluded=False,
            excused=False,
            view=view._replace(cancel=renewed.answer.cancel),
        )
        moved = world._replace(store=renewed.store).put(trusting)
        yield self._maybe_starts(line, moved, trusting, violation)


def _outcome(step: Step) -> str:
    if step.answer.heard is not Heard.OK:
        return str(step.answer.heard)
    if not step.wrote:
        return "ok (nothing written)"
    run = step.after.run
    assert run is not None
    return f"applied, v{run.version}" + (f", {run.status}" if run.ended else "")
