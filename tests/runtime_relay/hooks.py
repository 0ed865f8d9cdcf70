"""Runners that call a receiver on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tenure
from tenure.model.snapshot import CallbackTarget
from tenure.model.update import Position
from tests.notifiers.receiver import Received, Receiver

EVERYTHING = ("run", "step", "host")

AT_ONCE = tenure.CallbackSettings(allow_private=True, attempts=3, delay=0, flush=20)
"""A failed attempt is followed by the next, and closing lets everything be tried."""
MUCH_LATER = tenure.CallbackSettings(allow_private=True, attempts=3, delay=3600, flush=20)
"""A failed attempt is the last that this test sees."""


def hook(
    receiver: Receiver, path: str = "ok", *, events: Iterable[str] = EVERYTHING, **rest: Any
) -> CallbackTarget:
    rest.setdefault("name", "hook")
    return CallbackTarget(url=receiver.url(path), events=tuple(events), **rest)


def types(received: Iterable[Received]) -> list[str]:
    return [each.json["type"] for each in received]


def place(received: Received) -> Position:
    return Position(received.json["version"], received.json["seq"])


def firsts(received: Iterable[Received]) -> list[Received]:
    """Each callback as it came for the first time."""
    first: dict[str, Received] = {}
    for each in received:
        first.setdefault(each.headers["webhook-id"], each)
    return list(first.values())


def bare(record: Any) -> Any:
    """A record without what must differ between two runs: ids, times, and what says that there were
    callbacks."""
    if isinstance(record, list):
        return [bare(each) for each in record]
    if not isinstance(record, dict):
        return record
    return {
        name: bare(value)
        for name, value in record.items()
        if name not in ("run_id", "owner_id", "callbacks", "callback_error")
        and not name.endswith("_at")
    }
