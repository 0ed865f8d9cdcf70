"""What each run option must be. Type checkers say so too, to those who use one.

A value of the wrong type would otherwise be noticed late, in other words, or never: a text given
for a list of hosts is a list of letters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from math import inf, ulp
from typing import Any

from tenure.model.codec import why_not_kept
from tenure.model.errors import InvalidWorkflow
from tenure.model.leases import MAX_PRIORITY, MIN_PRIORITY
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import Recovery
from tenure.ports.store import RunStateStore
from tenure.runtime.given_values import problems_of_values
from tenure.workflow.spec import CallbackSpec
from tenure.workflow.wording import called, shown

Rules = Mapping[str, tuple[Callable[[Any], bool], str]]
"""For each option whether a value fits, and what would."""

MAX_QUEUE_NAME = 100
A_QUEUE = f"a queue's name: printable, 1 to {MAX_QUEUE_NAME} characters"


def problems_of(options: Any) -> list[str]:
    """Everything that is not what it must be, naming the option."""
    given = {name for name in _RULES if getattr(options, name) is not None}
    wrong = broken(_RULES, options, given | _NEVER_NONE)
    return wrong or [
        *problems_of_values("vars", options.vars),
        *problems_of_targets("callbacks", options.callbacks),
    ]


def broken(rules: Rules, options: Any, names: Collection[str]) -> list[str]:
    return [
        f"{name} must be {expected}, and is {shown(value) if name in _WORDS else _told(value)}"
        for name, (fits, expected) in rules.items()
        if name in names and not fits(value := getattr(options, name))
    ]


def problems_of_targets(name: str, targets: Sequence[CallbackSpec | CallbackTarget]) -> list[str]:
    """By the rules of a workflow's ``callbacks``."""
    if not targets:
        return []
    from tenure.workflow.parse import read_targets  # the workflow's grammar, for those in need

    try:
        read_targets([_spec_of(each) for each in targets])
    except InvalidWorkflow as error:
        return [
            f"{name}{each.path.removeprefix('callbacks')}: {each.message}"
            + (f"; {each.hint}" if each.hint else "")
            for each in error.mistakes
        ]
    return []


def _spec_of(target: CallbackSpec | CallbackTarget) -> CallbackSpec:
    if isinstance(target, CallbackSpec):
        return target
    return CallbackSpec(
        url=target.url or "",
        events=target.events,
        secret_env=target.secret_env,
        headers=target.headers,
    )


def _told(value: object) -> str:
    """A number may be repeated. Text may not: it could be a secret in the wrong place."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if plain else called(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def is_queue(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_QUEUE_NAME and value.isprintable()


def is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _names_text(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    )


def _names_bytes(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(data, bytes) for name, data in value.items()
    )


def _names_values(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def is_list_of(*kinds: type) -> Callable[[object], bool]:
    """A text is a sequence of texts, and never meant as one."""

    def fits(value: object) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(isinstance(each, kinds) for each in value)

    return fits


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime) and why_not_kept(value) is None


def is_whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and is_number(least, most)(value)


def is_number(least: float, most: float) -> Callable[[object], bool]:
    """A finite one."""

    def fits(value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return least <= value <= most and value != inf

    return fits


SECONDS = (is_number(0, inf), "a number of seconds, zero or more")
MORE_SECONDS = (is_number(ulp(0.0), inf), "a number of seconds, more than zero")


def whole(least: int, most: int) -> tuple[Callable[[object], bool], str]:
    return is_whole(least, most), f"a whole number from {least} to {most}"


_RULES: Rules = {
    "run_id": (_is_text, "text"),
    "store": (
        lambda value: isinstance(value, RunStateStore),
        "an open store, as tenure.open_store(url) gives",
    ),
    "notifier": (
        lambda value: callable(getattr(value, "notify", None)),
        "an object with an async method notify, as RunStateNotifier has it",
    ),
    "vars": (_names_values, "a map from names to values"),
    "secrets": (_names_text, "a map from names to text"),
    "labels": (_names_text, "a map from text to text"),
    "callbacks": (is_list_of(CallbackSpec, CallbackTarget), "a list of CallbackSpec"),
    "queue": (is_queue, A_QUEUE),
    "priority": whole(MIN_PRIORITY, MAX_PRIORITY),
    "run_after": (_is_moment, "a datetime with its time zone, up to the year 9998"),
    "recovery": (lambda value: isinstance(value, Recovery), "'interrupt' or 'resume'"),
    "timeout": SECONDS,
    "limit": (is_list_of(str), "a list of hosts and groups"),
    "local": (is_flag, "True or False"),
    "retry_of": (_is_text, "text"),
    "approved_by": (_is_text, "text"),
    "requested_by": (_is_text, "text"),
    "files": (_names_bytes, "a map from names to bytes"),
}
_WORDS = frozenset({"recovery"})
"""Options that are one of a few words: a wrong one may be repeated."""
_NEVER_NONE = frozenset({"vars", "secrets", "labels", "callbacks", "limit", "local"})
