"""Which run the work at hand is about, for whoever writes a log of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_run_id: ContextVar[str | None] = ContextVar("tenure_run_id", default=None)


@contextmanager
def about(run_id: str | None) -> Iterator[None]:
    """Also for the tasks that begin meanwhile."""
    token = _run_id.set(run_id)
    try:
        yield
    finally:
        _run_id.reset(token)


def run_at_hand() -> str | None:
    return _run_id.get()
