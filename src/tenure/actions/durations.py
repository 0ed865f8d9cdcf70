"""Durations among the arguments of actions."""

from __future__ import annotations

from typing import Any

from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.catalogue import Argument, Form
from tenure.workflow.durations import PATTERN, parse_duration


def _readable(value: Any) -> bool:
    try:
        return parse_duration(value) > 0
    except ValueError:
        return False


_FORM = Form(called="a duration like 30s or 1h30m", fits=_readable, pattern=PATTERN)


def duration(name: str, description: str) -> Argument:
    return Argument(name=name, form=_FORM, description=description)


def seconds_of(task: Task, name: str, default: str | None = None) -> float | None:
    """``None`` if neither it nor a default is given."""
    given = task.args.get(name, default)
    if given is None:
        return None
    if not isinstance(given, str) or not _readable(given):
        raise InvalidArguments(f"{name} must be {_FORM.called}")
    return parse_duration(given)
