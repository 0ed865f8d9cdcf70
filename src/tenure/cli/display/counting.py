"""How the hosts of a step stand, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenure.model.status import ENDED_HOST, HostStatus

_ORDER = (
    HostStatus.SUCCESS,
    HostStatus.FAILED,
    HostStatus.UNREACHABLE,
    HostStatus.UNKNOWN,
    HostStatus.CANCELED,
    HostStatus.INTERRUPTED,
    HostStatus.SKIPPED,
)
_TROUBLE = _ORDER[1:6]
_WORDS = {HostStatus.SUCCESS: "ok"}


class Piece(NamedTuple):
    text: str
    status: str | None = None
    """Whose colour it has; none: plain."""


def so_far(counts: Mapping[HostStatus, int], total: int) -> list[Piece]:
    """Of a step that runs: ``12/50``, ``10 running``, ``1 failed``."""
    ended = sum(counts.get(status, 0) for status in ENDED_HOST)
    found = [Piece(f"{ended:,}/{total:,}")]
    running = counts.get(HostStatus.RUNNING, 0)
    if running:
        found.append(Piece(f"{running:,} running", "running"))
    return found + _each(counts, _TROUBLE)


def in_the_end(counts: Mapping[HostStatus, int]) -> list[Piece]:
    """Of a step that ended: ``48 ok``, ``2 failed``."""
    return _each(counts, _ORDER)


def _each(counts: Mapping[HostStatus, int], order: tuple[HostStatus, ...]) -> list[Piece]:
    return [
        Piece(f"{counts[status]:,} {_WORDS.get(status, status)}", status)
        for status in order
        if counts.get(status)
    ]
