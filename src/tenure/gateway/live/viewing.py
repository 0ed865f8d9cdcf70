"""The way of one viewer: what was before it came, then what happens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, TypeVar

from tenure.gateway.live.watched import Part, Watched
from tenure.runtime.patience import ENDLESS, surely

K = TypeVar("K", bound=Any)


async def view(watched: Watched[K], place: K) -> AsyncGenerator[Part[K], None]:
    """All that comes behind ``place``, to the end. Raises what ended it otherwise."""
    while True:
        if place < watched.kept_behind:
            part = await surely(partial(watched.history, place), ENDLESS)
            place = part.place if part.data else watched.kept_behind  # nothing was between
        else:
            part = watched.behind(place)
            place = part.place
        if part.data:
            yield part
        elif watched.failure is not None:
            raise watched.failure
        elif place >= watched.place:
            if watched.over:
                yield Part(place, watched.last_words())
                return
            await watched.news()
