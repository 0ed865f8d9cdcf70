"""Being told that there may be something to do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Wakeups(Protocol):
    """Without it everything is found by looking, an interval later.

    Writers never wait for listeners, nor for one another on their account.
    """

    def listen(
        self, topics: Collection[str], heard: Callable[[], None]
    ) -> AbstractAsyncContextManager[None]:
        """While it is entered ``heard`` is called, in the event loop that entered it, when one of
        these topics (``model.wakeups``) may have news, whichever process they come from. The first
        call says that listening has begun, and so does the next after an interruption: what came
        before may have been missed.

        A hint may be lost, may come for nothing, and may stand for many: whoever listens still
        looks by himself now and then, and at the store to learn what there is. Many may hear the
        same one: who then claims, claims only what he has room for.
        """
        ...


@runtime_checkable
class WakeupCheck(Protocol):
    """Without it nobody can tell whether hints arrive: everything works, only later."""

    async def hears_hints(self) -> bool | None:
        """Whether one that is told now is heard, by a try of its own. ``None``: it was told not to
        listen. May take a few seconds."""
        ...
