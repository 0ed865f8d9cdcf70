"""Where the variables of a step can come from, as far as the file tells.

A set of steps is a whole number here, a bit for each: a file may have thousands of steps that use
what thousands of others export.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from graphlib import TopologicalSorter
from typing import NamedTuple

from tenure.workflow.catalogue import ANYTHING, Catalogue, Text
from tenure.workflow.inventory import Roster, roster_of
from tenure.workflow.plan import needs_of
from tenure.workflow.render import text_kind, texts_in
from tenure.workflow.spec import Step, Workflow
from tenure.workflow.variables import OWN
from tenure.workflow.wording import did_you_mean

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
        """What any of the steps that notify it could have, and what they export themselves."""
        before = 0
        for index in notifying:
            before |= self._may_have_ended(index) | 1 << index
        return self._visible(notifying, before)

    def _visible(self, steps: Sequence[int], before: int) -> Visible:
        on_hosts = [self._on_hosts_of(self._steps[index]) for index in steps]
        return Visible([self._everywhere, *on_hosts], before, self._exports)

    def _on_hosts_of(self, step: Step) -> set[str]:
        """What at least one of its hosts brings."""
        targets = tuple(step.targets)
        names = self._of_targets.get(targets)
        if names is None:
            hosts = (self._roster.hosts[host] for host in self._roster.choose(targets))
            shared = {id(host.vars): host.vars for host in hosts}
            names = self._of_targets[targets] = set().union(*shared.values())
        return names

    def _may_have_ended(self, index: int) -> int:
        """Steps whose exports may be there: all that do not wait for this one."""
        return (1 << len(self._steps)) - 1 & ~(1 << index) & ~self._waiting_for[index]

    @cached_property
    def _roster(self) -> Roster:
        return roster_of(self._workflow.inventory)

    @cached_property
    def _waiting_for(self) -> list[int]:
        """Per step those that begin after its end."""
        needs = dict(enumerate(needs_of(self._workflow)))
        waiting = [0] * len(needs)
        for index in reversed([*TopologicalSorter(needs).static_order()]):
            for needed in needs[index]:
                waiting[needed] |= waiting[index] | 1 << index
        return waiting


class Visible:
    """What variables there may be in a step or handler."""

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
        """Whether a step before may export others than it says."""
        return bool(self._exports.unsaid & self._before)

    @property
    def exported_openly(self) -> bool:
        """Whether it looks as if one did."""
        return bool(self._exports.open & self._before)

    def may_gain(self, name: str | None) -> bool:
        """Whether a step before may export ``name``, however unlikely; ``None``: anything."""
        said = self._exports.by_name
        steps = said.values() if name is None else (said.get(name, 0),)
        return self.exportable or any(each & self._before for each in steps)

    def spoken_of(self, name: str) -> bool:
        """Whether the script of one, as far as one can see, has to do with ``name``."""
        return bool(self._exports.saying(name) & self._before)

    def nearest(self, name: str) -> str | None:
        exported = (each for each, by in self._exports.by_name.items() if by & self._before)
        return did_you_mean(name, set().union(*self._names, exported))


class _Script(NamedTuple):
    text: str | None
    """``None`` if it cannot be seen."""
    prints: bool
    """Whether what it prints may be exports."""


class _Exports:
    """What steps export: names they say, and names only their scripts know."""

    def __init__(self, steps: Sequence[Step], catalogue: Catalogue) -> None:
        self.by_name: dict[str, int] = {}
        """Steps that export it, and say so."""
        self.unsaid = 0
        """Steps that may export anything."""
        self.open = 0
        """Of these, the ones that look as if they did."""
        self._hidden = 0
        self._words: dict[str, int] = {}
        for index, step in enumerate(steps):
            names, script = _exported(step, catalogue)
            _mark(self.by_name, names, 1 << index)
            if script is not None:
                self._note(script, 1 << index)

    def _note(self, script: _Script, bit: int) -> None:
        self.unsaid |= bit
        if script.text is None:
            self._hidden |= bit
        else:
            _mark(self._words, _WORD.findall(script.text), bit)
        if script.text is None or script.prints or "TENURE_OUTPUT" in script.text:
            self.open |= bit

    def saying(self, name: str) -> int:
        """Steps whose script has to do with ``name``, or cannot be seen."""
        return self._words.get(name, 0) | self._hidden


def _mark(where: dict[str, int], names: Iterable[str], bit: int) -> None:
    for name in names:
        where[name] = where.get(name, 0) | bit


def _exported(step: Step, catalogue: Catalogue) -> tuple[set[str], _Script | None]:
    """What it says it exports; and its script, if that may export more."""
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
    """Where in ``text`` the variable ``name`` may be meant."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)").search(text, start)
    return found.start() if found else None
