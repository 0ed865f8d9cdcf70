"""Which of all that is watched has grown: one question for all runs, one for all output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

from tenure.gateway.live.journals import RunJournal
from tenure.gateway.live.outputs import TaskOutput
from tenure.gateway.live.watched import Growing, Watched
from tenure.model.errors import StoreUnavailable
from tenure.ports.event_log import RunVersions
from tenure.ports.log_sizes import LogSizes

N = TypeVar("N")
Question = Callable[[Collection[N]], Awaitable[dict[N, int]]]


class Survey:
    """What a store cannot be asked of many at once is looked at one by one."""

    def __init__(self, store: object) -> None:
        self._questions: dict[type[Watched[Any]], Question[Any]] = {}
        if isinstance(store, RunVersions):
            self._questions[RunJournal] = store.versions_of
        if isinstance(store, LogSizes):
            self._questions[TaskOutput] = store.sizes_of

    async def take(self, watched: Iterable[Growing[Any]]) -> None:
        """Tell those it is about. ``StoreUnavailable``."""
        everything = list(watched)
        for kind, question in self._questions.items():
            asked = [each for each in everything if isinstance(each, kind)]
            if asked:
                sizes = await _known(question, {each.name for each in asked})
                for each in asked:
                    each.size = sizes.get(each.name)


async def _known(question: Question[N], names: Collection[N]) -> dict[N, int]:
    """What nothing is known of is looked at, and so tells its viewers what is wrong with it."""
    try:
        return await question(names)
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001  (it comes again)
        return {}
