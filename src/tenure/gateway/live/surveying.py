"""Which of all that is watched has grown: one question, however much that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from tenure.gateway.live.journals import RunJournal
from tenure.gateway.live.watched import Growing
from tenure.model.errors import StoreUnavailable
from tenure.ports.marks import RunMarks

K = TypeVar("K")


class Survey:
    """On a store that cannot be asked for many runs at once, each is looked at."""

    def __init__(self, store: object) -> None:
        self._marks = store if isinstance(store, RunMarks) else None

    async def take(self, watched: Iterable[Growing[Any]]) -> None:
        """Tell those it is about. ``StoreUnavailable``."""
        journals: dict[str, list[RunJournal]] = defaultdict(list)
        for each in watched:
            if isinstance(each, RunJournal):
                journals[each.run_id].append(each)
        if self._marks is None or not journals:
            return
        versions = await _as_far_as_known(self._marks.versions_of(journals))
        for run_id, same in journals.items():
            for journal in same:
                journal.newest = versions.get(run_id)


async def _as_far_as_known(answer: Awaitable[dict[K, int]]) -> dict[K, int]:
    """What nothing is known of is looked at, and so tells its viewers what is wrong with it."""
    try:
        return await answer
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001  (it comes again)
        return {}
