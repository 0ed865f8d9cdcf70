"""A run that this version of Tenure cannot read, among others: those are handed out anyway.

Somebody has edited the database, or a defect has written what nobody should. Whoever asks for that
very run is told; whoever asks for many gets the others. A claim that took it keeps it until the
lease ends, and only then does the next one try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from tenure.model.errors import StoreIncompatible

T = TypeVar("T")

_log = logging.getLogger("tenure.stores")


def readable(texts: Iterable[str], read: Callable[[str], T]) -> Iterator[T]:
    for text in texts:
        try:
            yield read(text)
        except StoreIncompatible as wrong:
            _log.warning("run %s is left out: %s", run_id_in(text), wrong)


def run_id_in(text: str) -> str:
    """Of a head, or of what begins with one."""
    head: Any = msgspec.json.decode(text)
    return str((head[0] if isinstance(head[0], list) else head)[1])
