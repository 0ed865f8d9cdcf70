"""Write ``docs/reference/callback.schema.json`` from what callbacks are made of.

python tools/callback_schema.py            write the file
python tools/callback_schema.py --check    exit 1 if the file on disk is not what it would write
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from tenure.model.snapshot import ErrorInfo
from tenure.wire.callback import CallbackPayload

FILE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "callback.schema.json"

MEANING: dict[type[msgspec.Struct], dict[str, dict[str, Any]]] = {
    CallbackPayload: {
        "type": {
            "description": "What happened: the kind (run, step, host), a dot, and the new status.",
            "examples": ["run.success", "step.failed", "host.unreachable"],
        },
        "run_id": {"description": "Which run."},
        "workflow_name": {"description": "What it executes."},
        "status": {"description": "The new status of what `type` is about."},
        "run_status": {"description": "The status of the run after this change."},
        "step": {"description": "The step, for step and host callbacks; else null."},
        "host": {"description": "The host, for host callbacks; else null."},
        "timestamp": {
            "description": "When the change became durable, UTC by the store's clock.",
            "format": "date-time",
        },
        "error": {"description": "Why, for what failed or was interrupted; else null."},
        "version": {
            "description": "The run's version of this change. (version, seq) orders a run's "
            "callbacks.",
            "minimum": 1,
        },
        "seq": {"description": "The place among the events of that version.", "minimum": 0},
    },
    ErrorInfo: {
        "kind": {
            "description": "For programs.",
            "examples": ["failed", "timeout", "unreachable", "interrupted"],
        },
        "message": {"description": "For people, in one line."},
        "step": {"description": "Where it failed."},
        "host": {"description": "The first host that failed."},
        "exit_code": {"description": "Of the command that failed."},
        "stderr_tail": {"description": "The end of what that command said."},
        "failed_hosts": {"description": "The first twenty hosts that failed."},
        "failed_count": {"description": "How many hosts failed in all."},
    },
}
"""What the types cannot say."""
HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Tenure callback",
    "description": "The body of a callback. Fields may be added: ignore what you do not know.",
}


def schema() -> dict[str, Any]:
    made = msgspec.json.schema(CallbackPayload)
    for kind, meaning in MEANING.items():
        part = made["$defs"][kind.__name__]
        part.pop("description", None)
        for field, properties in part["properties"].items():
            properties |= meaning[field]
    return HEAD | made


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the schema of callbacks from the code.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    parser.add_argument("--file", type=Path, default=FILE, help="another file to write or check")
    options = parser.parse_args(arguments)
    path: Path = options.file
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if not options.check:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} does not match src/tenure/wire/callback.py; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
