"""Which run the work at hand is about, for whoever writes a log of it."""

from __future__ import annotations

from contextvars import ContextVar

_run_id: ContextVar[str | None] = ContextVar("tenure_run_id", default=None)


class about:
    """Also for the tasks that begin meanwhile."""

    __slots__ = ("_before", "_run_id")

    def __init__(self, run_id: str | None) -> None:
        self._run_id = run_id

    def __enter__(self) -> None:
        self._before = _run_id.set(self._run_id)

    def __exit__(self, *_: object) -> None:
        _run_id.reset(self._before)


def run_at_hand() -> str | None:
    return _run_id.get()
