"""A run as one JSON object per line, for programs: its events as the journal has them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.cli.display.printer import Printer
from tenure.model.codec import full_record
from tenure.model.events import RecordedEvent


def as_json(value: Any) -> str:
    """Every field, unset ones as null; in one line."""
    return msgspec.json.encode(full_record(value)).decode()


class JsonView:
    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def record(self, event: RecordedEvent) -> None:
        self._printer.line(as_json(event))
