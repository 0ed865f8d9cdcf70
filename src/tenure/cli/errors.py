"""Errors on stderr: text for people, or one JSON object for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from tenure.cli.display.text import bold, complain, counted, dim, one_line, say, to_type
from tenure.cli.exit_codes import Exit, verdict
from tenure.model import errors
from tenure.model.errors import InvalidWorkflow, Mistake, TenureError

# Mistakes in workflow files, in the format of compilers, so that editors can jump to them.


def mistake_line(mistake: Mistake) -> str:
    """``deploy.yaml:7:14: steps[1].timeout: …; did you mean …?``"""
    place = mistake.source
    if mistake.line is not None:
        place += f":{mistake.line}:{mistake.column}"
    words = [bold(one_line(place))]
    if mistake.path:
        words.append(one_line(mistake.path))
    words.append(one_line(mistake.message))
    return ": ".join(words) + (dim(f"; {one_line(mistake.hint)}") if mistake.hint else "")


def how_many(mistakes: Iterable[object]) -> str:
    return counted(len(list(mistakes)), "mistake")


# All errors: as text or JSON.

_FACTS = ("run_id", "delivery_id", "owner_id", "expires_at", "host", "address")
"""Attributes of errors that are shown to programs besides the message."""


def type_of(kind: type[TenureError]) -> str:
    """``run-not-found`` for ``RunNotFound`` and for its subclasses in other packages."""
    ours = next(each for each in kind.__mro__ if each.__module__.startswith("tenure."))
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", ours.__name__).lower()


def error_types() -> dict[str, Exit]:
    """Every error type, with its exit code."""
    found = {
        "usage": Exit.USAGE,
        "answer-not-written": Exit.STORE,
        "stopped": Exit.HARD_STOP,
        "defect": Exit.DEFECT,
    }
    for kind in error_kinds():
        found[type_of(kind)] = verdict(kind.__new__(kind))[0]
    return found


def error_kinds() -> list[type[TenureError]]:
    """Every error that a command may end with, without the abstract roots of the tree."""
    from tenure.cli.commands.logs import NoSuchOutput
    from tenure.cli.commands.token import NoSuchToken
    from tenure.cli.context import NoRunsYet, NoSuchStore
    from tenure.config import InvalidSettings
    from tenure.gateway.problems import CannotListen, NotSafe

    named = [each for each in vars(errors).values() if isinstance(each, type)]
    tree = [each for each in named if issubclass(each, TenureError)]
    roots = {base for each in tree for base in each.__bases__}
    ends = [each for each in tree if each not in roots]
    return [
        *ends,
        CannotListen,
        InvalidSettings,
        NoRunsYet,
        NoSuchOutput,
        NoSuchStore,
        NoSuchToken,
        NotSafe,
    ]


def tell(
    type: str,
    message: str,
    code: Exit,
    *,
    as_json: bool,
    facts: Mapping[str, Any] = {},
    advice: str | None = None,
) -> int:
    if as_json:
        from tenure.cli.display.json_lines import as_json as encoded

        said = {"type": type, "message": message, "exit_code": int(code), **facts}
        say(encoded({"error": said | ({"advice": advice} if advice else {})}), err=True)
    else:
        complain(message)
        if advice:
            say(f"  {advice}", err=True)
    return code


def expected(error: TenureError, *, as_json: bool) -> int:
    code, advice = verdict(error)
    advice = advice and to_type(advice)
    message = str(error)
    if isinstance(error, InvalidWorkflow) and not as_json:
        for mistake in error.mistakes:
            say(mistake_line(mistake), err=True)
        message = f"{how_many(error.mistakes)}; nothing was executed"
    facts = _facts(error)
    return tell(type_of(type(error)), message, code, as_json=as_json, facts=facts, advice=advice)


def _facts(error: TenureError) -> dict[str, Any]:
    from tenure.config import InvalidSettings

    known = {name: getattr(error, name) for name in _FACTS if hasattr(error, name)}
    if isinstance(error, InvalidWorkflow):
        known["problems"] = error.mistakes
    elif isinstance(error, InvalidSettings):
        known["problems"] = [{"message": problem} for problem in error.problems]
    return known


def wrong_usage(error: click.ClickException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, NoArgsIsHelpError):
        say(error.format_message(), err=True)
        return Exit.USAGE
    if context is not None and not as_json:
        say(context.get_usage(), err=True)
        say(f"Try '{context.command_path} {context.help_option_names[0]}' for help.\n", err=True)
    return tell("usage", error.format_message(), Exit.USAGE, as_json=as_json)


def not_written(error: OSError, *, as_json: bool) -> int:
    message = f"the answer cannot be written: {error.strerror}"
    return tell("answer-not-written", message, Exit.STORE, as_json=as_json)


def stopped(*, as_json: bool) -> int:
    return tell("stopped", "stopped before the answer", Exit.HARD_STOP, as_json=as_json)
