"""How long runs were without an owner, by the journal's times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import NamedTuple

from tests.system.workers.invariants import History, owner_name


class Gap(NamedTuple):
    """From when a run's owner was lost, or gave it back, to when it had another."""

    begun: datetime
    ended: datetime


def taken_over(history: History) -> Iterator[Gap]:
    for events in history.journals.values():
        for event in events:
            if event.type == "lease.taken_over":
                yield Gap(history.lost[owner_name((event.data or {}).get("from"))], event.at)


def handed_over(history: History) -> Iterator[Gap]:
    for events in history.journals.values():
        released = None
        for event in events:
            if event.type == "lease.released":
                released = event.at
            elif event.type == "lease.claimed" and released is not None:
                yield Gap(released, event.at)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[ceil(share * len(values)) - 1]
