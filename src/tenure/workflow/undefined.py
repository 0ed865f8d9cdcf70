"""Variables that a workflow uses and does not define, found before anything runs.

They may be given when a run is started, and a command may export any name, so a variable missing
here need not be missing in the run. ``certain`` means that the step is certain to fail unless the
run is given the variable. A use that might succeed is never called certain.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from graphlib import TopologicalSorter
from typing import NamedTuple

from tenure.model.errors import InvalidWorkflow, Mistake, Wanted
from tenure.workflow.arguments import PROBE, evaluated_in, evaluated_in_loop, text_kind, texts_in
from tenure.workflow.catalogue import ANYTHING, Catalogue, Text
from tenure.workflow.expressions import Expression, compile_condition
from tenure.workflow.inventory import Roster, roster_of
from tenure.workflow.plan import OWN, Plan, needs_of
from tenure.workflow.spec import Handler, Step, Workflow
from tenure.workflow.wording import did_you_mean
from tenure.workflow.yaml import Path

# Sources of variables, as far as the file tells. A set of steps is an integer, one bit for each: a
# file may have thousands of steps that use what thousands of others export.


_WORD = re.compile(r"\w+")


class Sources:
    def __init__(self, workflow: Workflow, catalogue: Catalogue) -> None:
        self._steps = workflow.steps
        self._workflow = workflow
        self._everywhere = {*OWN, *workflow.vars, *workflow.secrets}
        self._exports = _Exports(workflow.steps, catalogue)
        self._of_targets: dict[tuple[str, ...], set[str]] = {}

    def in_step(self, index: int) -> Visible:
        return self._visible([index], self._may_have_ended(index))

    def in_handler(self, notifying: Sequence[int]) -> Visible:
        """What is visible in any of the notifying steps, and their own exports."""
        before = 0
        for index in notifying:
            before |= self._may_have_ended(index) | 1 << index
        return self._visible(notifying, before)

    def _visible(self, steps: Sequence[int], before: int) -> Visible:
        on_hosts = [self._on_hosts_of(self._steps[index]) for index in steps]
        return Visible([self._everywhere, *on_hosts], before, self._exports)

    def _on_hosts_of(self, step: Step) -> set[str]:
        """Variables of at least one of its hosts."""
        targets = tuple(step.targets)
        names = self._of_targets.get(targets)
        if names is None:
            hosts = (self._roster.hosts[host] for host in self._roster.choose(targets))
            shared = {id(host.vars): host.vars for host in hosts}
            names = self._of_targets[targets] = set().union(*shared.values())
        return names

    def _may_have_ended(self, index: int) -> int:
        """Steps whose exports may be present: all that do not wait for this one."""
        return (1 << len(self._steps)) - 1 & ~(1 << index) & ~self._waiting_for[index]

    @cached_property
    def _roster(self) -> Roster:
        return roster_of(self._workflow.inventory)

    @cached_property
    def _waiting_for(self) -> list[int]:
        """For each step those that begin after its end."""
        needs = dict(enumerate(needs_of(self._workflow)))
        waiting = [0] * len(needs)
        for index in reversed([*TopologicalSorter(needs).static_order()]):
            for needed in needs[index]:
                waiting[needed] |= waiting[index] | 1 << index
        return waiting


class Visible:
    """The variables that may be defined in a step or handler."""

    def __init__(self, names: Sequence[set[str]], before: int, exports: _Exports) -> None:
        self._names = names
        self._before = before
        self._exports = exports

    def __contains__(self, name: str) -> bool:
        return any(name in each for each in self._names) or bool(
            self._exports.by_name.get(name, 0) & self._before
        )

    @property
    def exportable(self) -> bool:
        """Whether an earlier step may export undeclared names."""
        return bool(self._exports.undeclared & self._before)

    @property
    def likely_exports(self) -> bool:
        """Whether an earlier step appears to do so."""
        return bool(self._exports.open & self._before)

    def may_gain(self, name: str | None) -> bool:
        """Whether an earlier step may export ``name``, however unlikely; ``None``: any name."""
        said = self._exports.by_name
        steps = said.values() if name is None else (said.get(name, 0),)
        return self.exportable or any(each & self._before for each in steps)

    def mentions(self, name: str) -> bool:
        """Whether the visible script of an earlier step mentions ``name``."""
        return bool(self._exports.mentioning(name) & self._before)

    def nearest(self, name: str) -> str | None:
        exported = (each for each, by in self._exports.by_name.items() if by & self._before)
        return did_you_mean(name, set().union(*self._names, exported))


class _Script(NamedTuple):
    text: str | None
    """``None`` if it is not in the file."""
    prints: bool
    """Whether its output may contain exports."""


class _Exports:
    """What steps export: declared names, and names known only to their scripts."""

    def __init__(self, steps: Sequence[Step], catalogue: Catalogue) -> None:
        self.by_name: dict[str, int] = {}
        """Steps that declare it."""
        self.undeclared = 0
        """Steps that may export any name."""
        self.open = 0
        """Those of them that appear to."""
        self._hidden = 0
        self._words: dict[str, int] = {}
        for index, step in enumerate(steps):
            names, script = _exported(step, catalogue)
            _mark(self.by_name, names, 1 << index)
            if script is not None:
                self._note(script, 1 << index)

    def _note(self, script: _Script, bit: int) -> None:
        self.undeclared |= bit
        if script.text is None:
            self._hidden |= bit
        else:
            _mark(self._words, _WORD.findall(script.text), bit)
        if script.text is None or script.prints or "TENURE_OUTPUT" in script.text:
            self.open |= bit

    def mentioning(self, name: str) -> int:
        """Steps whose script mentions ``name``, or is not in the file."""
        return self._words.get(name, 0) | self._hidden


def _mark(where: dict[str, int], names: Iterable[str], bit: int) -> None:
    for name in names:
        where[name] = where.get(name, 0) | bit


def _exported(step: Step, catalogue: Catalogue) -> tuple[set[str], _Script | None]:
    """Its declared exports; and its script, if that may export more."""
    spec = catalogue[step.action]
    said = set(step.expect_vars)
    if spec.exports is None:
        return said, None
    named = step.args.get(spec.exports)
    if spec.exports != ANYTHING and isinstance(named, dict | None):
        return said.union(named or ()), None
    fields = {argument.name: argument for argument in spec.arguments}
    texts = [
        text
        for path, text in texts_in(step.args)
        if text_kind(fields, str(path[0])) in (Text.SHELL, Text.PYTHON)
    ]
    return said, _Script("\n".join(texts) if texts else None, bool(step.args.get("export_vars")))


def place_of_name(name: str, text: str, start: int = 0) -> int | None:
    """Where ``text`` appears to use the variable ``name``."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)").search(text, start)
    return found.start() if found else None


def check_supplied(wanted: Iterable[Wanted], plan: Plan, given: Container[str]) -> None:
    """``InvalidWorkflow`` with the mistakes of ``not_supplied``."""
    missing = not_supplied(wanted, plan, given)
    if missing:
        raise InvalidWorkflow(missing)


def not_supplied(
    wanted: Iterable[Wanted], plan: Plan, given: Container[str]
) -> tuple[Mistake, ...]:
    """Variables without which a step of ``plan`` is certain to fail; ``given``: those of the run
    and its secrets."""
    return first_uses(
        each
        for each in wanted
        if each.certain
        and each.name not in given
        and (each.step is None or plan.steps[each.step].hosts)
    )


def first_uses(wanted: Iterable[Wanted]) -> tuple[Mistake, ...]:
    """Each variable once, at its first certain use, or its first use."""
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
    """For a workflow without other mistakes. Each name once per place."""
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
    """Where to search for the name in the text."""
    name: str
    certain: bool
    """The step fails without it, if it begins at all."""
    item: bool = False
    """Whether a loop's item is defined."""


def _uses_of_step(step: Step, catalogue: Catalogue) -> Iterator[_Use]:
    """A false condition skips everything else of its step; a loop without items skips everything
    done per item."""
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
    """None is certain: the handler may never be notified."""
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
    if use.name in visible or (use.item and use.name == "item") or visible.mentions(use.name):
        return
    near = visible.nearest(use.name)
    if near is None and visible.likely_exports:
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
