"""Variables a workflow uses and does not define: known before anything runs.

Whoever starts a run may supply them, and a command may export what it likes, so what is missing
here need not be missing there. ``certain`` is what is: its step cannot but fail, unless the run is
given the variable. Nothing that would run is called certain.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from tenure.model.errors import InvalidWorkflow, Mistake, Wanted
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.expressions import Expression, compile_condition
from tenure.workflow.nodes import Path
from tenure.workflow.plan import Plan
from tenure.workflow.render import PROBE, evaluated_in, evaluated_in_loop
from tenure.workflow.sources import Sources, Visible, place_of_name
from tenure.workflow.spec import Handler, Step, Workflow


def check_supplied(wanted: Iterable[Wanted], plan: Plan, given: Container[str]) -> None:
    """``InvalidWorkflow`` with what ``not_supplied`` finds."""
    missing = not_supplied(wanted, plan, given)
    if missing:
        raise InvalidWorkflow(missing)


def not_supplied(
    wanted: Iterable[Wanted], plan: Plan, given: Container[str]
) -> tuple[Mistake, ...]:
    """Variables without which a step of ``plan`` cannot but fail; ``given`` are those of the run,
    and its secrets."""
    return first_uses(
        each
        for each in wanted
        if each.certain
        and each.name not in given
        and (each.step is None or plan.steps[each.step].hosts)
    )


def first_uses(wanted: Iterable[Wanted]) -> tuple[Mistake, ...]:
    """What to tell: each variable once, where it is used first and surely, if it surely is."""
    told: dict[str, Wanted] = {}
    for each in wanted:
        if each.certain > told.setdefault(each.name, each).certain:
            told[each.name] = each
    return tuple(each.said for each in told.values())


class Undefined(NamedTuple):
    """A use of a variable that nothing in the file defines."""

    path: Path
    offset: int | None
    """Of the name in the text at ``path``."""
    name: str
    certain: bool
    message: str
    hint: str


def unknown_variables(workflow: Workflow, catalogue: Catalogue) -> Iterator[Undefined]:
    """In a workflow without other mistakes. Each name once per place."""
    sources = Sources(workflow, catalogue)
    for index, step in enumerate(workflow.steps):
        visible = sources.in_step(index)
        for use in _uses_of_step(step, catalogue):
            yield from _judged(use, ("steps", index), visible)
    for index, handler in enumerate(workflow.handlers):
        notifying = [n for n, step in enumerate(workflow.steps) if handler.name in step.notify]
        visible = sources.in_handler(notifying)
        for use in _uses_of_handler(handler, catalogue) if notifying else ():
            yield from _judged(use, ("handlers", index), visible)


class _Use(NamedTuple):
    path: Path
    text: str
    start: int
    """From where the name stands in the text."""
    name: str
    certain: bool
    """The step fails without it, if it begins at all."""
    item: bool = False
    """Whether a loop's item is there."""


def _uses_of_step(step: Step, catalogue: Catalogue) -> Iterator[_Use]:
    """A condition keeps everything else of its step from being looked at; a loop without items
    whatever is done per item."""
    always, looping, some_item = step.when is None, step.loop is not None, _has_some_item(step)
    if step.when is not None:
        condition = compile_condition(step.when)
        asked = some_item or "item" not in condition.names
        yield from _names(("when",), step.when, 0, condition, asked, looping)
    for place, name in enumerate(step.must_vars):
        yield _Use(("must_vars", place), name, 0, name, always)
    for path, text, part in evaluated_in_loop(step.loop or ()):
        yield from _names(("loop", *path), text, part.offset, part.expression, always)
    for path, text, part in evaluated_in(step.args, catalogue[step.action]):
        sure = always and some_item
        yield from _names(("args", *path), text, part.offset, part.expression, sure, looping)
    probe = {} if step.verify is None else {"cmd": step.verify.cmd}
    for path, text, part in evaluated_in(probe, PROBE):
        yield from _names(("verify", *path), text, part.offset, part.expression, False, looping)


def _has_some_item(step: Step) -> bool:
    return step.loop is None or (not isinstance(step.loop, str) and bool(step.loop))


def _uses_of_handler(handler: Handler, catalogue: Catalogue) -> Iterator[_Use]:
    """Whether anybody will notify it is not certain."""
    if handler.when is not None:
        condition = compile_condition(handler.when)
        yield from _names(("when",), handler.when, 0, condition, False, True)
    for path, text, part in evaluated_in(handler.args, catalogue[handler.action]):
        yield from _names(("args", *path), text, part.offset, part.expression, False, True)


def _names(
    path: Path, text: str, start: int, expression: Expression, sure: bool, item: bool = False
) -> Iterator[_Use]:
    for name in sorted(expression.names):
        needed = name in expression.needs
        if needed or name not in expression.asks:
            yield _Use(path, text, start, name, sure and needed, item)


def _judged(use: _Use, path: Path, visible: Visible) -> Iterator[Undefined]:
    if use.name in visible or (use.item and use.name == "item") or visible.spoken_of(use.name):
        return
    near = visible.nearest(use.name)
    if near is None and visible.exported_openly:
        return
    exportable = visible.exportable
    yield Undefined(
        path=(*path, *use.path),
        offset=place_of_name(use.name, use.text, use.start),
        name=use.name,
        certain=use.certain and not exportable,
        message=f"{use.name!r} is not defined here"
        + (", unless a command exports it" if exportable else ""),
        hint=" or ".join(_hints(use, near, exportable)),
    )


def _hints(use: _Use, near: str | None, exportable: bool) -> Iterator[str]:
    if near is not None:
        yield near
    yield f"give it with --var {use.name}=… (vars=… in Python)"
    if exportable:
        yield f"add expect_vars: [{use.name}] to the step that exports it"
    if use.path == ("when",):
        yield f"quote it ('{use.name}') if it is meant as text"
