"""What was said of a run's file is not said again while it stays true: who looks, looks often."""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger("tenure.stores")


class Told:
    """Of one store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}

    def warn(self, run_id: str, words: str) -> None:
        with self._lock:
            if self._said.get(run_id) == words:
                return
            self._said[run_id] = words
        _log.warning("%s", words)

    def is_over(self, run_id: str) -> None:
        with self._lock:
            self._said.pop(run_id, None)
