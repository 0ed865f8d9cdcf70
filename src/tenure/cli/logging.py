"""What a process says besides its answers: for people a word of warning, for programs a line of
JSON each, on stderr."""

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
"""What these complain of is the store's to say, in its words: that a call was given up, say."""


class ToPeople(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info:
            text += f"\n{logging.Formatter().formatException(record.exc_info)}"
        note(text)


class ToPrograms(logging.Handler):
    """``at``, ``level``, ``logger``, ``message``; ``run_id`` where it is about one; ``traceback``;
    and whatever facts came with it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = msgspec.json.encode(described(record)).decode()
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  (a log that cannot be written stops nothing)
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
    """Of a process that serves, programs hear more than warnings."""
    if settings.log_format == JSON_LOGS:
        logging.getLogger("tenure").setLevel(logging.INFO)


def announcer(settings: Settings) -> Callable[[str], None]:
    """For what a process says of itself, in the form in which all else is said on stderr."""
    return _log.info if settings.log_format == JSON_LOGS else note
