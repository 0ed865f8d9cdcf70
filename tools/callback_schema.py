"""Write ``docs/reference/callback.schema.json`` from what callbacks are made of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from tools.generated import FOLDER, write_or_check

from tenure.model.snapshot import ErrorInfo
from tenure.wire.callbacks import CallbackPayload

FILE = FOLDER / "callback.schema.json"

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


def text(_: str) -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"callback.schema.json": text}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
