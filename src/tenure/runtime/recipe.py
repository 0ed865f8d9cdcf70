"""A workflow compiled for execution (``prepare``), the order of its steps, and the definition that
is stored with a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tenure.model.codec import decode
from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import HostState, StepState
from tenure.ports.execution import Action, Endpoint
from tenure.runtime.retry_history import Continuation, StepPast, narrowed
from tenure.workflow.arguments import PROBE, CompiledArgs, CompiledLoop, compile_args, compile_loop
from tenure.workflow.expressions import Condition, compile_condition
from tenure.workflow.plan import Plan, PlannedStep
from tenure.workflow.spec import Handler, OnTakeover, Rolling, Step


class Order(Struct, frozen=True):
    """Dependencies of the steps of a plan."""

    needs: tuple[int, ...]
    """By step: how many steps it waits for."""
    followers: tuple[tuple[int, ...], ...]
    """By step: the steps that wait for it."""
    first: tuple[int, ...]
    """Steps that wait for none."""


def order_of(steps: Sequence[PlannedStep]) -> Order:
    followers: list[list[int]] = [[] for _ in steps]
    for step in steps:
        for needed in step.needs:
            followers[needed].append(step.index)
    return Order(
        tuple(len(step.needs) for step in steps),
        tuple(tuple(waiting) for waiting in followers),
        tuple(step.index for step in steps if not step.needs),
    )


class ReadySteps:
    """The steps that may begin now: those whose needs have all ended (succeeded, skipped, or failed
    with ``continue_on_error``)."""

    __slots__ = ("_followers", "_missing", "left", "ready")

    def __init__(self, order: Order) -> None:
        self._missing = list(order.needs)
        self._followers = order.followers
        self.ready = list(order.first)
        """Steps that may begin and were not taken yet."""
        self.left = len(self._missing)
        """Number of steps that have not begun."""

    def take_ready(self) -> list[int]:
        """In the order of the file."""
        ready, self.ready = self.ready, []
        self.left -= len(ready)
        return ready if len(ready) < 2 else sorted(ready)

    def ended(self, index: int) -> None:
        for follower in self._followers[index]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                self.ready.append(follower)


class Recipe(Struct, frozen=True, kw_only=True, gc=False):
    """One step or handler, compiled."""

    name: str
    action: Action
    args: CompiledArgs
    when: Condition | None = None
    loop: CompiledLoop | None = None
    retries: RetryPolicy = RetryPolicy()
    timeout: float | None = None
    concurrency: int = 50
    must_vars: tuple[str, ...] = ()
    expect_vars: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    continue_on_error: bool = False
    rolling: Rolling | None = None
    become: str | None = None
    on_takeover: OnTakeover = OnTakeover.RERUN
    """What to do with a task whose result is unknown after its worker was lost."""
    probe: Recipe | None = None
    """Checks whether its work is done (``verify``)."""
    short: bool = False
    """It starts no process and has one attempt: it reports nothing before its end."""


class Prepared(Struct, frozen=True, kw_only=True):
    """A plan with its recipes, and the steps of a new run's record."""

    plan: Plan
    endpoints: dict[str, Endpoint]
    """By the host's name."""
    recipes: tuple[Recipe, ...]
    handlers: dict[str, Recipe]
    order: Order
    planned_steps: tuple[StepState, ...]
    in_all: tuple[int, ...]
    """By step: the number of its hosts, with those that are not left for a retry."""
    past: Mapping[int, StepPast] = {}
    owed: Mapping[int, Mapping[str, tuple[str, ...]]] = {}
    """By step: handlers notified by an earlier run, with the hosts on which they are still due."""


def prepare(
    plan: Plan, actions: Mapping[str, Action], continues: Continuation | None = None
) -> Prepared:
    """Compile a checked plan. ``continues``: what earlier runs have left of it. ``InvalidWorkflow``
    if an action is not registered."""
    past: Mapping[int, StepPast] = {}
    owed: dict[int, Mapping[str, tuple[str, ...]]] = {}
    in_all = tuple(len(step.hosts) for step in plan.steps)
    if continues is not None:
        plan, past = narrowed(plan, continues), continues.past
        owed = {step.index: continues.owed(step.index) for step in plan.steps}
    recipes = tuple(_step_recipe(planned.step, plan, actions) for planned in plan.steps)
    handlers = {name: _recipe(handler, plan, actions) for name, handler in plan.handlers.items()}
    steps = tuple(
        StepState(
            index=planned.index,
            name=planned.step.name,
            action=planned.step.action,
            hosts={host: HostState() for host in planned.hosts},
        )
        for planned in plan.steps
    )
    return Prepared(
        plan=plan,
        endpoints={
            name: Endpoint(name=name, address=host.address) for name, host in plan.hosts.items()
        },
        recipes=recipes,
        handlers=handlers,
        order=order_of(plan.steps),
        planned_steps=steps,
        in_all=in_all,
        past=past,
        owed=owed,
    )


def _recipe(
    what: Handler | Step, plan: Plan, actions: Mapping[str, Action], **more: object
) -> Recipe:
    action = _found(what.action, what.name, actions)
    defaults = plan.workflow.defaults
    return Recipe(
        name=what.name,
        action=action,
        args=compile_args(what.args, action.spec),
        when=compile_condition(what.when) if what.when is not None else None,
        retries=what.retries.policy,
        timeout=what.timeout if what.timeout is not None else defaults.timeout,
        become=what.become,
        short=not action.spec.environment and what.retries.policy.attempts == 1,
        on_takeover=plan.on_takeover_of(what, action.spec),
        **more,  # type: ignore[arg-type]
    )


def _found(name: str, where: str, actions: Mapping[str, Action]) -> Action:
    action = actions.get(name)
    if action is None:
        raise InvalidWorkflow([Mistake(path=where, message=f"there is no action {name!r}")])
    return action


def _step_recipe(step: Step, plan: Plan, actions: Mapping[str, Action]) -> Recipe:
    defaults = plan.workflow.defaults
    return _recipe(
        step,
        plan,
        actions,
        probe=_probe(step, plan, actions),
        loop=None if step.loop is None else compile_loop(step.loop),
        concurrency=step.concurrency or defaults.concurrency,
        must_vars=tuple(step.must_vars),
        expect_vars=tuple(step.expect_vars),
        notify=tuple(dict.fromkeys(step.notify)),
        continue_on_error=step.continue_on_error,
        rolling=step.rolling,
    )


def _probe(step: Step, plan: Plan, actions: Mapping[str, Action]) -> Recipe | None:
    if step.verify is None:
        return None
    return Recipe(
        name=step.name,
        action=_found("cmd.run", step.name, actions),
        args=compile_args({"cmd": step.verify.cmd}, PROBE),
        timeout=step.verify.timeout or step.timeout or plan.workflow.defaults.timeout,
        become=step.become,
    )


class Definition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run executes: the workflow's text and the options of its start. It is stored with the
    run; a takeover or retry needs nothing else."""

    workflow: str
    """The file's text; of a workflow built in Python its JSON, which is YAML too."""
    source: str | None = None
    folder: str | None = None
    limit: tuple[str, ...] = ()
    local: bool = False
    files: dict[str, bytes] = {}
    """Files for its actions, by the names in their arguments."""
    continues: Continuation | None = None
    """For a retry."""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


_definitions = msgspec.json.Decoder(Definition)


def decode_definition(text: str) -> Definition:
    return decode(_definitions, text)


def digest_of(workflow: str) -> str:
    """Equal for every run of the same text."""
    return f"sha256:{hashlib.sha256(workflow.encode()).hexdigest()}"
