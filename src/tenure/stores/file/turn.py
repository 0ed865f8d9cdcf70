"""One call's waiting for a run's file: looks at its lock, with pauses in which no thread is held.

A look is one attempt at the whole call, in a thread, that ends with ``Locked`` if the file is not
free. So those who wait for one run leave the threads to all others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar

from tenure.model.errors import StoreUnavailable
from tenure.stores.file.disk import Locked, OpenFile, open_locked
from tenure.stores.file.gate import COURTESY, Gate, is_held
from tenure.stores.file.patience import Patience
from tenure.stores.lock_holder import holders_of, who_holds

T = TypeVar("T")


class Turn:
    def __init__(self, patience: Patience, seconds: float) -> None:
        self._patience = patience
        self._seconds = seconds
        self._since = monotonic()
        """When it was asked for, whenever the first look is."""
        self._looks = 0
        self._seen_first: dict[Path, frozenset[int]] = {}
        """Who had the file that was locked at the first look."""
        self._gate = Gate()

    def __enter__(self) -> Self:
        self._patience.one_more()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Who is canceled may leave a look under way in its thread: it waits for nothing more."""
        self._gate.end()
        self._patience.one_less()

    def look(self, work: Callable[[Turn], T]) -> T:
        """``Locked``: pause, and look again. ``StoreUnavailable``: that was the last time."""
        last = self._patience.is_over(self._since, self._seconds)
        try:
            return work(self)
        except Locked as locked:
            if last:
                waited = monotonic() - self._since
                seen_first = self._seen_first.get(locked.path, frozenset())
                raise StoreUnavailable(
                    who_holds(locked.path, waited, seen_first=seen_first)
                ) from None
            self._note(locked.path)
            raise

    def _note(self, path: Path) -> None:
        if not self._looks:
            self._seen_first[path] = holders_of(path)
        self._looks += 1

    def pause(self) -> float:
        return self._patience.pause(self._looks)

    def lock(self, path: Path, gate: Path, *, exclusive: bool) -> OpenFile:
        """The file, unless it is ``Locked``, or somebody waits to write it and it is polite to
        let them. ``FileNotFoundError`` if there is none."""
        if not self._gate.is_ours and self._is_polite and is_held(gate):
            raise Locked(path)
        try:
            file = open_locked(path, exclusive=exclusive)
        except Locked:
            if exclusive:
                self._gate.hold(gate)
            raise
        self._gate.end()
        return file

    @property
    def _is_polite(self) -> bool:
        return monotonic() - self._since < COURTESY
