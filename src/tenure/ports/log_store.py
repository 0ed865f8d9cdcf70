"""Full output of tasks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.update import Fencing


class LogKey(Struct, frozen=True, kw_only=True):
    """One stream of one attempt."""

    step: int
    host: str
    stream: str
    """``stdout`` or ``stderr``."""
    item: int | None = None
    attempt: int = 1


class LogSlice(Struct, frozen=True, kw_only=True):
    offset: int
    data: bytes
    size: int
    """Bytes there were when this was read; ``offset + len(data) == size`` means caught up."""


@runtime_checkable
class LogStore(Protocol):
    """Without it only the tails in the record remain."""

    async def append(
        self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes
    ) -> int:
        """Write ``data`` at ``offset``, which is where the stream ended; return where it ends now.

        ``RunNotFound``; ``LeaseLost`` if the writer's fence and owner are not the run's: none
        begun after a claim succeeds. Sending the same bytes at the same offset again changes
        nothing. ``StoreRejected`` for an offset past the end (a gap) or for other bytes than the
        ones already there.
        """
        ...

    async def read(
        self, run_id: str, key: LogKey, offset: int = 0, *, limit: int = 65536
    ) -> LogSlice:
        """Raw bytes from ``offset``; empty for a stream nobody wrote. ``RunNotFound``."""
        ...
