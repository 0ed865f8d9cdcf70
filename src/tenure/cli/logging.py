"""Logs on stderr: warnings as text for people, one JSON object per line for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tenure.aio import run_at_hand
from tenure.cli.display.text import note
from tenure.config import JSON_LOGS, Settings

_log = logging.getLogger("tenure.cli")

_DRIVERS = ("psycopg",)
"""The store reports errors of these itself, in its own words."""


class ToPeople(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info:
            text += f"\n{logging.Formatter().formatException(record.exc_info)}"
        note(text)


class ToPrograms(logging.Handler):
    """Writes ``at``, ``level``, ``logger``, ``message``; ``run_id`` if there is one; ``traceback``;
    and the facts of the record."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = msgspec.json.encode(described(record)).decode()
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  (a log that cannot be written must stop nothing)
            self.handleError(record)


def described(record: logging.LogRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "at": datetime.fromtimestamp(record.created, UTC),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
        "run_id": run_at_hand(),
        **getattr(record, "facts", {}),
    }
    if record.exc_info:
        facts["traceback"] = logging.Formatter().formatException(record.exc_info)
    return {name: value for name, value in facts.items() if value is not None}


def show_warnings(*, as_json: bool = False) -> None:
    log = logging.getLogger("tenure")
    for name in _DRIVERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if as_json:
        log.handlers = [ToPrograms(logging.INFO)]
        logging.getLogger().addHandler(ToPrograms(logging.WARNING))
    elif not log.handlers:
        log.addHandler(ToPeople(logging.WARNING))
    log.propagate = False


def tell_everything(settings: Settings) -> None:
    """For a process that serves: programs get more than warnings."""
    if settings.log_format == JSON_LOGS:
        logging.getLogger("tenure").setLevel(logging.INFO)


def announcer(settings: Settings) -> Callable[[str], None]:
    """Prints a process's messages about itself, in the same form as its log."""
    return _log.info if settings.log_format == JSON_LOGS else note
