"""Every step that can be taken next, and what can become of a call; breadth first, so that the
first violation found has a shortest history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tenure.model.update import Fencing
from tests.model.explorer.protocol import (
    RECONCILER,
    Answer,
    Bounds,
    Desk,
    Heard,
    Message,
    Rules,
    Verb,
)
from tests.model.explorer.world import (
    INVARIANTS,
    OPERATOR,
    Call,
    Move,
    Phase,
    Step,
    Violation,
    Weather,
    Worker,
    World,
    abandoned,
    cancel_message,
    check_renewal,
    check_start,
    check_step,
    claim_message,
    decide,
    first_world,
    hear,
    operator_hears,
    release_message,
    remember,
    spend_fault,
    starved,
    still_granted,
    still_trusted,
)


class Sent(NamedTuple):
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

    def handled(self, prefix: str, world: World, message: Message) -> Sent:
        handled = self._desk.handle(world.store, message)
        wrote = handled.wrote(world.store)
        step = Step(message, world.store, handled.store, handled.answer, wrote)
        ghost = remember(world.ghost, step)
        violation = check_step(step, world.ghost, world.workers)
        line = f"{prefix} -> {_outcome(step)}"
        after = world._replace(store=handled.store, ghost=ghost)
        if self._bounds.failovers and wrote and message.verb is Verb.CLAIM:
            after = after._replace(replica=(world.store, world.ghost))
        return Sent(line, after, handled.answer, violation)

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
        after = hear(worker, message, answer, self._rules)
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


class Moves:
    """All moves out of a world, under given rules and bounds."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self._rules = rules
        self._bounds = bounds
        self._post = Post(rules, bounds)

    def of(self, world: World) -> Iterator[Move]:
        if world.weather is not Weather.DOWN:
            for worker in world.workers:
                yield from self._worker_moves(world, worker)
            if world.store.record is not None:
                yield from self._operator_moves(world)
            yield from self._arrivals(world)
        yield from self._time(world)
        yield from self._disasters(world)

    def _worker_moves(self, world: World, worker: Worker) -> Iterator[Move]:
        if worker.call is not None:
            yield from self._awaits(world, worker, worker.call)
        elif worker.phase is Phase.IDLE:
            yield from self._claims(world, worker)
        elif worker.phase is Phase.HOLDING:
            yield from self._drives(world, worker)
        if worker.phase is Phase.HOLDING:
            yield from self._post.renews(world, worker)
            if world.left.drains and worker.name != RECONCILER:
                left = world.left._replace(drains=world.left.drains - 1)
                leaving = worker._replace(
                    phase=Phase.LEAVING, trust=False, running=False, release_due=True
                )
                yield from self._releases(world._replace(left=left).put(leaving), leaving)
        elif worker.release_due:
            yield from self._releases(world, worker)

    def _awaits(self, world: World, worker: Worker, call: Call) -> Iterator[Move]:
        if call.answer is not None:
            line = f"{worker.name} hears the late answer to {call.message}: {call.answer.heard}"
            yield self._post.heard(line, world, worker, call.message, call.answer)
        again = " again" if call.sent else ""
        yield from self._post.sends(world, worker, self._wary(world, call.message), again)

    def _claims(self, world: World, worker: Worker) -> Iterator[Move]:
        run, store = world.store.run, world.store
        if run is None or run.ended or store.live or worker.claims >= self._bounds.claims:
            return
        if worker.name == "worker-b" and not run.fence:
            return  # the two are alike: let worker-a be the first
        message = self._wary(world, claim_message(worker))
        if message.wary and run.owner_id is not None:
            return  # there is nothing it would get
        if worker.name == RECONCILER and not self._rules.reconcile_by_claim:
            yield from self._reads_expiry(world, worker)
            return
        if not self._rules.claim_then_read and store.begun is None:
            assert store.record is not None
            begun = store._replace(begun=(worker.name, store.record))
            yield Move(f"{worker.name}'s claim statement begins", world._replace(store=begun))
        yield from self._post.sends(world, worker._replace(claims=worker.claims + 1), message)

    def _wary(self, world: World, message: Message) -> Message:
        """Just after an outage a claim, also one sent again, leaves expired leases alone."""
        if message.verb is not Verb.CLAIM or not self._rules.wait_after_outage:
            return message
        return message._replace(wary=world.weather is Weather.BACK)

    def _reads_expiry(self, world: World, worker: Worker) -> Iterator[Move]:
        """A careless reconciler: it reads, and what it read it will overwrite."""
        run = world.store.run
        if run is not None and run.owner_id is not None:
            message = Message(worker.name, Verb.OVERWRITE, run.version)
            reader = worker._replace(claims=worker.claims + 1, call=Call(message, sent=False))
            yield Move(f"{worker.name} reads v{run.version}: lease expired", world.put(reader))

    def _drives(self, world: World, worker: Worker) -> Iterator[Move]:
        message = decide(worker)
        if worker.running:
            if message is not None:  # a cancel is known: the task is killed
                yield from self._post.sends(world, worker._replace(running=False), message)
            done = worker._replace(running=False, result=True)
            message = decide(done)
            assert message is not None
            yield from self._post.sends(world, done, message, ended=True)
        elif message is not None:
            yield from self._post.sends(world, worker, message)

    def _releases(self, world: World, worker: Worker) -> Iterator[Move]:
        message = release_message(worker)
        line, after, _, violation = self._post.handled(
            f"{worker.name} sends release", world, message
        )
        done = worker._replace(release_due=False)
        yield Move(line, after.put(done if done.call else done.lost()), violation)
        if world.left.faults:
            yield Move(f"{line}, answer lost", spend_fault(after), violation)
            yield self._post.delays(f"{worker.name} sends release", world, message)

    def _operator_moves(self, world: World) -> Iterator[Move]:
        operator, run = world.operator, world.store.run
        if operator.done or run is None:
            return
        if operator.call is not None:
            yield from self._cancels(world, operator.call.message, " again")
        elif not self._rules.operator_any_base and operator.read is None:
            reader = operator._replace(read=run.version, done=run.ended)
            yield Move(f"{OPERATOR} reads v{run.version}", world._replace(operator=reader))
        else:
            yield from self._cancels(world, cancel_message(operator, self._rules))

    def _cancels(self, world: World, message: Message, again: str = "") -> Iterator[Move]:
        prefix = f"{OPERATOR} sends {message}{again}"
        line, after, answer, violation = self._post.handled(prefix, world, message)
        operator = operator_hears(world.operator, answer)
        violation = violation or starved(operator.refused)
        yield Move(line, after._replace(operator=operator), violation)
        if world.left.faults:
            waiting = world.operator._replace(call=Call(message))
            if answer.heard is Heard.OK:
                lost = spend_fault(after)._replace(operator=waiting)
                yield Move(f"{line}, answer lost", lost, violation)
            yield self._post.delays(prefix, world._replace(operator=waiting), message)

    def _arrivals(self, world: World) -> Iterator[Move]:
        """A delayed call arrives; whoever sent it no longer listens for this copy's answer."""
        for position, message in enumerate(world.delayed):
            if position and world.delayed[position - 1] == message:
                continue
            rest = world.delayed[:position] + world.delayed[position + 1 :]
            prefix = f"the late {message} of {message.sender} arrives"
            line, after, _, violation = self._post.handled(
                prefix, world._replace(delayed=rest), message
            )
            yield Move(line, after, violation)

    def _time(self, world: World) -> Iterator[Move]:
        run = world.store.run
        for worker in world.workers:
            if not worker.trust:
                continue
            if world.weather is Weather.DOWN:
                after = worker.silenced(excused=True, rules=self._rules)
                yield Move(f"{worker.name} cannot renew and stops its task", world.put(after))
            elif world.left.silences:
                left = world.left._replace(silences=world.left.silences - 1)
                after = worker.silenced(excused=False, rules=self._rules)
                line = f"{worker.name} falls silent past its trust window"
                yield Move(line, world._replace(left=left).put(after))
        if run is not None and world.store.live and not still_trusted(world, run):
            expired = world._replace(store=world.store._replace(live=False))
            yield Move(f"the lease of {run.owner_id} expires", expired)

    def _disasters(self, world: World) -> Iterator[Move]:
        if world.weather is Weather.UP and world.left.outages:
            left = world.left._replace(outages=world.left.outages - 1)
            away = world._replace(weather=Weather.DOWN, left=left, delayed=())
            yield Move("the store goes away, and all that was on its way to it", away)
        if world.weather is Weather.DOWN:
            yield Move("the store comes back", world._replace(weather=Weather.BACK))
        if world.weather is Weather.BACK and not any(each.excused for each in world.workers):
            yield Move("a renew interval passes", world._replace(weather=Weather.UP))
        if world.replica is not None and world.left.failovers:
            store, ghost = world.replica
            left = world.left._replace(failovers=world.left.failovers - 1)
            after = world._replace(store=store, ghost=ghost, replica=None, left=left)
            yield Move("a failover forgets the newest claim", after)


class Explored(NamedTuple):
    states: int
    moves: int
    depth: int
    """Steps of the longest shortest way to any state."""
    complete: bool
    """Every state within the bounds was visited."""
    violation: Violation | None = None
    history: tuple[str, ...] = ()
    ends: frozenset[tuple[str, int]] = frozenset()
    """Every end that was reached, with the number of takeovers before it."""

    def __str__(self) -> str:
        size = f"{self.states} states, {self.moves} moves, depth {self.depth}"
        if self.violation is None:
            return f"no violation in {size}" + ("" if self.complete else " (cut off)")
        lines = [f"{number}. {line}" for number, line in enumerate(self.history, start=1)]
        verdict = f"=> breaks {self.violation.invariant}: {self.violation.sentence}"
        return "\n".join([*lines, verdict, f"({size})"])


def explore(
    rules: Rules = Rules(),
    bounds: Bounds = Bounds(),
    *,
    watched: Collection[str] = INVARIANTS,
    max_depth: int = 200,
) -> Explored:
    """Every history within ``bounds``, until one breaks a watched invariant."""
    moves_of = Moves(rules, bounds).of
    start = first_world(rules, bounds)
    came: dict[World, tuple[World, str] | None] = {start: None}
    frontier, moves, depth = [start], 0, 0
    while frontier and depth < max_depth:
        depth += 1
        following: list[World] = []
        for world in frontier:
            for line, after, violation in moves_of(world):
                moves += 1
                if violation is not None and violation.invariant in watched:
                    history = (*_way_to(world, came), line)
                    return Explored(len(came), moves, depth, False, violation, history)
                if after not in came:
                    came[after] = (world, line)
                    following.append(after)
        frontier = following
    return Explored(len(came), moves, depth - 1, not frontier, ends=_ends(came))


def _ends(worlds: Iterable[World]) -> frozenset[tuple[str, int]]:
    runs = (world.store.run for world in worlds)
    return frozenset((str(run.status), run.takeovers) for run in runs if run and run.ended)


def _way_to(world: World, came: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    lines: list[str] = []
    step = came[world]
    while step is not None:
        world, line = step
        lines.append(line)
        step = came[world]
    return tuple(reversed(lines))
