"""Types of arguments: numbers, durations, moments, names, ``key=value`` pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from tenure.runtime.options import A_QUEUE, is_queue
from tenure.workflow.durations import parse_duration

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,199}", re.ASCII)
_PAIR = re.compile(r"(?P<key>[^=:][^=]{0,199}?)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)


class Whole(click.IntRange):
    name = "whole number"


class QueueName(click.ParamType[str]):
    """A queue, checked by the same rule as in run options."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_queue(value):
            self.fail(f"{str(value)[:40]!r} is not {A_QUEUE}.", param, ctx)
        return str(value)


class Duration(click.ParamType[float]):
    """``unit``: also nothing needs one, for options by which ``0`` means everything."""

    name = "duration"

    def __init__(self, *, unit: bool = False) -> None:
        self._unit = unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if self._unit and isinstance(value, str) and value.strip().isdecimal():
            number = value.strip()
            self.fail(f"{number!r} has no unit: {number}d are days, {number}h hours.", param, ctx)
        try:
            if isinstance(value, str) and (self._unit or value.strip() != "0"):
                return parse_duration(value)
            return float(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class Moment(click.ParamType[float | datetime]):
    """``1h`` (ago, or from now) or a time such as ``2026-05-01T12:00:00Z``."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | datetime:
        with suppress(ValueError):
            return parse_duration(value)
        with suppress(ValueError):
            return datetime.fromisoformat(value).astimezone()
        raise click.BadParameter(
            f"{value[:40]!r} is neither a duration like 1h nor a time like 2026-05-01T12:00.",
            ctx,
            param,
        )


def moment_after(given: float | datetime | None, now: datetime) -> datetime | None:
    return now + timedelta(seconds=given) if isinstance(given, float) else given


def moment_before(given: float | datetime | None, now: datetime) -> datetime | None:
    return now - timedelta(seconds=given) if isinstance(given, float) else given


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """Parse ``key=value`` pairs."""
    found: dict[str, str] = {}
    for text in given:
        match = _PAIR.fullmatch(text)
        if match is None or match["sign"] != "=" or not match["key"].strip():
            raise click.BadParameter(f"{text[:60]!r} is not key=value.", param_hint=option)
        found[match["key"].strip()] = _text(match["key"], match["value"], option)
    return found


def is_variable(name: str) -> bool:
    """Whether a workflow can use it as ``${name}``."""
    return _VARIABLE.fullmatch(name) is not None


NOT_A_VARIABLE = (
    "is no name of a variable: a letter or _ first, then letters, digits, _ or - (200 at most)"
)


def values(given: Iterable[str], option: str) -> dict[str, Any]:
    """Parse ``key=text`` or ``key:=JSON``: ``count:=3``, ``hosts:=["a","b"]``."""
    found: dict[str, Any] = {}
    for text in given:
        match = _PAIR.fullmatch(text)
        if match is None or not match["key"].strip():
            raise click.BadParameter(
                f"{text[:60]!r} is neither name=text nor name:=JSON.", param_hint=option
            )
        key, value = match["key"].strip(), match["value"]
        found[key] = (_text if match["sign"] == "=" else _json)(key, value, option)
    return found


def _text(key: str, text: str, option: str) -> str:
    """Bytes that are not UTF-8 come from the shell as lone surrogates, which no record can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(
            f"{key}: the value is not UTF-8 text.", param_hint=option
        ) from error
    return text


def _json(key: str, text: str, option: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.BadParameter(
            f"{key}: {text[:60]!r} is not JSON ({error}). For text write {key}={text[:20]}.",
            param_hint=option,
        ) from error
