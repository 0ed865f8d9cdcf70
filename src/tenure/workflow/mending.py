"""A workflow with mistakes, made whole enough to look for undefined variables in it.

What is wrong has been reported already. What stands in for it here claims as little as possible:
of a condition that cannot be read nobody knows whether it holds, an action that is not there might
export whatever its arguments speak of, and of steps that wait for one another any may come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tenure.model.errors import ExpressionError
from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue, Text
from tenure.workflow.expressions import compile_condition
from tenure.workflow.inventory import roster_of
from tenure.workflow.nodes import Path
from tenure.workflow.plan import find_cycle, needs_of
from tenure.workflow.render import PROBE, compile_loop, text_problems
from tenure.workflow.spec import Handler, Step, Workflow

Work = TypeVar("Work", Step, Handler)

_PERHAPS = "true"
"""A condition: what depends on it is not sure to be looked at."""
_SOME = "${{ [] }}"
"""Items of which nobody knows how many there are."""


def mended(
    workflow: Workflow, catalogue: Catalogue, wrong: Callable[[Path], bool]
) -> tuple[Workflow, Catalogue]:
    """``wrong`` tells of a path whether a mistake was reported there."""
    actions = {**_stand_ins(workflow), **catalogue}
    steps = [
        _mended_step(step, actions[step.action], ("steps", index), wrong)
        for index, step in enumerate(workflow.steps)
    ]
    handlers = [_mended_work(handler, actions[handler.action]) for handler in workflow.handlers]
    whole = replace(workflow, steps=_without_unknown_names(workflow, steps), handlers=handlers)
    if find_cycle(needs_of(whole)) is not None:
        whole = replace(whole, steps=[replace(step, needs=()) for step in whole.steps])
    return whole, actions


def _stand_ins(workflow: Workflow) -> dict[str, ActionSpec]:
    """For any action: one whose arguments are all scripts."""
    names: dict[str, dict[str, None]] = {}
    for work in (*workflow.steps, *workflow.handlers):
        names.setdefault(work.action, {}).update(dict.fromkeys(work.args))
    return {
        action: ActionSpec(
            name=action,
            arguments=tuple(Argument(name=each, text=Text.SHELL) for each in arguments),
            environment=True,
        )
        for action, arguments in names.items()
    }


def _mended_step(step: Step, spec: ActionSpec, path: Path, wrong: Callable[[Path], bool]) -> Step:
    step = _mended_work(step, spec)
    if wrong((*path, "when")):
        step = replace(step, when=_PERHAPS)
    if wrong((*path, "loop")) or not _compiles_as_loop(step.loop):
        step = replace(step, loop=_SOME)
    if step.verify is not None and text_problems({"cmd": step.verify.cmd}, PROBE):
        step = replace(step, verify=None)
    return step


def _mended_work(work: Work, spec: ActionSpec) -> Work:
    unreadable = {path[0] for path, _ in text_problems(work.args, spec)}
    args = {name: value for name, value in work.args.items() if name not in unreadable}
    try:
        compile_condition(work.when or "")
    except ExpressionError:
        return replace(work, args=args, when=_PERHAPS)
    return replace(work, args=args)


def _compiles_as_loop(loop: Sequence[object] | str | None) -> bool:
    try:
        compile_loop(loop or ())
    except ExpressionError:
        return False
    return True


def _without_unknown_names(workflow: Workflow, steps: Sequence[Step]) -> list[Step]:
    roster = roster_of(workflow.inventory)
    names = {step.name for step in steps}
    return [
        replace(
            step,
            targets=[name for name in step.targets if roster.knows(name)],
            needs=step.needs
            and [name for name in step.needs if name in names and name != step.name],
        )
        for step in steps
    ]
