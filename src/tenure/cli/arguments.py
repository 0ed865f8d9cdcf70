"""Kinds of arguments: durations, ``key=value`` pairs, variables, files of variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.workflow.durations import parse_duration

_PAIR = re.compile(r"(?P<key>[^=:][^=]{0,199}?)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
_LARGEST_FILE = 1 << 20


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            return parse_duration(value) if isinstance(value, str) else float(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


class Moment(click.ParamType[str]):
    """``1h`` (that long ago) or a time like ``2026-05-01T12:00:00Z``."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_duration(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value[:40]!r} is neither a duration like 1h nor a time like 2026-05-01T12:00.",
                param,
                ctx,
            )
        return moment.astimezone()


def moment_before(given: float | datetime | None, now: datetime) -> datetime | None:
    return now - timedelta(seconds=given) if isinstance(given, float) else given


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """``key=value`` each."""
    found: dict[str, str] = {}
    for text in given:
        match = _PAIR.fullmatch(text)
        if match is None or match["sign"] != "=" or not match["key"].strip():
            raise click.BadParameter(f"{text[:60]!r} is not key=value.", param_hint=option)
        found[match["key"].strip()] = match["value"]
    return found


def values(given: Iterable[str], option: str) -> dict[str, Any]:
    """``key=text`` or ``key:=JSON`` each: ``count:=3``, ``hosts:=["a","b"]``."""
    found: dict[str, Any] = {}
    for text in given:
        match = _PAIR.fullmatch(text)
        if match is None or not match["key"].strip():
            raise click.BadParameter(
                f"{text[:60]!r} is neither name=text nor name:=JSON.", param_hint=option
            )
        key, value = match["key"].strip(), match["value"]
        found[key] = value if match["sign"] == "=" else _json(key, value, option)
    return found


def _json(key: str, text: str, option: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.BadParameter(
            f"{key}: {text[:60]!r} is not JSON ({error}). For text write {key}={text[:20]}.",
            param_hint=option,
        ) from error


def variables(files: Iterable[str], given: Iterable[str]) -> dict[str, Any]:
    """Those of files, the later file counting more; above them those of the command line."""
    found: dict[str, Any] = {}
    for name in files:
        found.update(values_of_file(Path(name)))
    return {**found, **values(given, "--var")}


def values_of_file(path: Path) -> dict[str, Any]:
    """Variables from YAML or JSON, read as a workflow file is. ``InvalidWorkflow``."""
    from tenure.workflow.document import read_document
    from tenure.workflow.nodes import Entries, plain
    from tenure.workflow.reading import Enough, Reading

    reading = Reading(str(path))
    root = None
    with suppress(Enough):
        root = read_document(_text(path), reading)
    if reading.mistakes:
        raise InvalidWorkflow(reading.mistakes)
    if not isinstance(root, Entries):
        raise _wrong(path, "must be a map of variables: name: value")
    found: dict[str, Any] = plain(root)
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_LARGEST_FILE + 1).decode()
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not UTF-8 text: byte {error.start}") from error


def _wrong(path: Path, message: str) -> InvalidWorkflow:
    return InvalidWorkflow([Mistake(source=str(path), message=message)])
