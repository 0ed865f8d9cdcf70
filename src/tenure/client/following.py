"""Following what happens: a line that breaks is taken up again where it broke, here or at another
gateway of the same store, and nothing comes twice."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tenure.client.line import Line, Query
from tenure.client.messages import Message, messages_in
from tenure.client.refusals import error_of, problem_in
from tenure.model.errors import StoreIncompatible, StoreUnavailable
from tenure.model.retry import RetryPolicy
from tenure.runtime.waiting import pause

T = TypeVar("T")

_AGAIN = RetryPolicy(attempts=10, delay=0.2, backoff=2.0, max_delay=10.0, jitter=0.5)
"""Most of a minute without an answer."""
_PLAIN, _END, _PROBLEM = "message", "end", "problem"
"""What else there is says that the line is about to be cut."""


class Stream(NamedTuple, Generic[T]):
    """What is followed, and what each of its messages is."""

    path: str
    query: Query
    kind: type[T]


async def followed(line: Line, stream: Stream[T]) -> AsyncGenerator[T]:
    """To its end, if it has one. ``StoreUnavailable`` if nobody answers at first, or for most of a
    minute later on; whatever else the gateway says is raised as it is."""
    place: str | None = None
    reached, failures = False, 0
    while True:
        lost = StoreUnavailable(f"{line.address} ended the stream, and could not be reached again")
        try:
            async with line.listening(stream.path, stream.query, place) as pieces:
                reached, failures = True, 0
                if pieces is None:
                    return
                async with aclosing(messages_in(pieces)) as messages:
                    async for message in messages:
                        if message.kind == _END:
                            return
                        if message.kind == _PROBLEM:
                            raise error_of(problem_in(500, message.data), line.address)
                        if message.kind == _PLAIN:
                            place = message.place or place
                            yield _value(message, stream.kind)
        except StoreUnavailable as error:
            if not reached:
                raise
            lost = error
        failures += 1
        wait = _AGAIN.wait_after(failures, luck=random.random())  # noqa: S311
        if wait is None:
            raise lost
        await pause(wait)


def _value(message: Message, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(message.data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreIncompatible(
            f"what the gateway tells this version of Tenure cannot read: {error}"
        ) from error
