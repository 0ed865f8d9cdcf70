"""Actions as a workflow sees them: names, arguments and properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

ANYTHING = "*"


class Text(StrEnum):
    """How ``${…}`` in an argument's text is replaced."""

    PLAIN = "plain"
    """By the value."""
    SHELL = "shell"
    """A script for sh: values travel as environment variables, never as text."""
    PYTHON = "python"
    """A script for Python: the same."""
    FIXED = "fixed"
    """Not at all."""


class Form(Struct, frozen=True, kw_only=True):
    """A constraint on a value beyond its type. Also checked on lists and maps whose parts are not
    rendered yet."""

    called: str
    """For messages: ``a duration like 30s``."""
    fits: Callable[[Any], bool]
    pattern: str | None = None
    """For editors: a pattern of valid text."""


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    types: tuple[str, ...] = ("string",)
    """Of JSON Schema: string, integer, number, boolean, array, object; empty: any."""
    required: bool = False
    text: Text = Text.PLAIN
    choices: tuple[Any, ...] = ()
    form: Form | None = None
    elsewhere: tuple[str, ...] = ()
    """Its names in other tools: for hints, not accepted."""
    file_bytes: int | None = None
    """For the name of a file beside the workflow, which travels with the run: its largest size."""
    in_sight: bool = False
    """It may become an argument of a process, which every user of the host can read."""
    description: str = ""


class ActionSpec(Struct, frozen=True, kw_only=True):
    """An action as the workflow file sees it."""

    name: str
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    exactly_one_of: tuple[tuple[str, ...], ...] = ()
    """Groups of arguments of which exactly one must be given."""
    at_most_one_of: tuple[tuple[str, ...], ...] = ()
    further_arguments: bool = False
    """Whether arguments not listed here are accepted (a Python function taking ``**rest``)."""
    obsolete: str | None = None
    """The replacement for an action of older files, which is accepted and can only fail."""
    environment: bool = False
    """Whether it starts processes, which then get the variables as their environment."""
    in_process: bool = False
    """Whether it works in the process that executes the run, where ``become`` is impossible."""
    exports: str | None = ANYTHING
    """Variables it may export: ``ANYTHING``, the keys of the argument named here, or none."""
    on_takeover: str | None = None
    """Default ``on_takeover`` of its steps, if not ``rerun``."""

    def meant_by(self, name: str) -> Argument | None:
        """The argument that other tools call ``name``."""
        return next((each for each in self.arguments if name in each.elsewhere), None)


Catalogue = Mapping[str, ActionSpec]
