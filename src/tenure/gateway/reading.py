"""Workflows that were handed in before need not be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 64
_MOST_CHARACTERS = 8 << 20


class Library(Generic[T]):
    """By their text; one at a time is read, however many threads ask: reading is work."""

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read
        self._known: OrderedDict[str, T] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def read(self, text: str) -> T:
        with self._lock:
            found = self._known.get(text)
            if found is None:
                found = self._known[text] = self._read(text)
                self._characters += len(text)
                while len(self._known) > _MOST or self._characters > _MOST_CHARACTERS:
                    oldest, _ = self._known.popitem(last=False)
                    self._characters -= len(oldest)
            else:
                self._known.move_to_end(text)
            return found
