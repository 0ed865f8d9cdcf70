"""What is known about actions before anything runs: their names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

ANYTHING = "*"


class Text(StrEnum):
    """How ``${…}`` in an argument's text is brought to its value."""

    PLAIN = "plain"
    """Replaced by the value."""
    SHELL = "shell"
    """A script for sh: values travel as environment variables, never as spliced text."""
    PYTHON = "python"
    """A script for Python: likewise."""
    FIXED = "fixed"
    """Left as it is."""


class Form(Struct, frozen=True, kw_only=True):
    """What a value must be beyond its type. Also asked of lists and maps whose parts are not
    rendered yet."""

    called: str
    """For messages: ``a duration like 30s``."""
    fits: Callable[[Any], bool]
    pattern: str | None = None
    """For editors: what text looks like that fits."""


class Argument(Struct, frozen=True, kw_only=True):
    name: str
    types: tuple[str, ...] = ("string",)
    """Of JSON Schema: string, integer, number, boolean, array, object; none = anything."""
    required: bool = False
    text: Text = Text.PLAIN
    choices: tuple[Any, ...] = ()
    form: Form | None = None
    elsewhere: tuple[str, ...] = ()
    """What other tools call it: for hints, not accepted."""
    file_bytes: int | None = None
    """It names a file beside the workflow, of at most so many bytes, which travels with the run."""
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
    """What to use instead: it is accepted from older files and can only fail."""
    environment: bool = False
    """Whether it starts processes, which then get the variables as their environment."""
    in_process: bool = False
    """Whether it works in the process that executes the run, where nobody becomes another user."""
    exports: str | None = ANYTHING
    """What variables it may export: ``ANYTHING``, the keys of the argument named here, or none."""
    on_takeover: str | None = None
    """Another default than ``rerun`` for what was running when its owner died."""

    def meant_by(self, name: str) -> Argument | None:
        """The argument that other tools call ``name``."""
        return next((each for each in self.arguments if name in each.elsewhere), None)


Catalogue = Mapping[str, ActionSpec]
