"""A run as one JSON object per line, for programs: its events exactly as in the journal."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tenure.cli.display.lines import Printer
from tenure.model.codec import full_record
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import RecordedEvent
from tenure.wire.callbacks import shown_target


def as_json(value: Any) -> str:
    """Every field on one line, unset ones as null. Credentials of callbacks are not shown."""
    record = full_record(value)
    if isinstance(value, RunSnapshot):
        record["callbacks"] = [full_record(shown_target(target)) for target in value.callbacks]
    try:
        return msgspec.json.encode(record).decode()
    except UnicodeEncodeError:  # a file name need not be text
        return json.dumps(record)


class JsonView:
    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def record(self, event: RecordedEvent) -> None:
        self._printer.line(as_json(event))
