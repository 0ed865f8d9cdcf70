"""From names to addresses.

Asking can take the system half a minute, and nothing ends it. So each question has a thread of its
own, as a daemon: the loop's pool would let a few names nobody answers for hold up everything else
that uses it, and keep the program from ending. Of such names a submitter may invent any number:

- Who asks for a name that is being asked for waits for that answer: a name has one thread.
- A question that is not answered soon gives its turn to the next and goes on apart. There are many
  places for such; a question that finds none keeps its turn, so that threads stay bounded.
- What was found last is remembered, and serves for a while when no newer answer comes soon:
  receivers we know are reached whatever else is asked.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

LookUp = Callable[[str], Awaitable[list[str]]]
"""The addresses behind a host name. ``OSError`` if there are none."""

_AT_ONCE = 32
_APART = 480
"""More than all attempts of a relay can leave behind: a thread that waits costs little."""
_SOON = 0.5
"""Seconds. An answer that comes at all usually takes a tenth of it."""
_IN_LINE = 30.0
"""Seconds until a question that gets no turn is given up."""
_REMEMBERED = 1024
_OF_USE = 600.0
"""Seconds for which an old answer serves."""


class _Found(Struct, frozen=True):
    addresses: list[str]
    at: float


class SystemLookUp:
    """Asks the system, so that ``/etc/hosts`` and the like count. Belongs to one loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._apart = 0
        self._questions: dict[str, asyncio.Task[list[str]]] = {}
        self._found: OrderedDict[str, _Found] = OrderedDict()

    async def __call__(self, host: str) -> list[str]:
        question = self._questions.get(host) or self._put(host)
        known = self._known(host)
        if known is not None:
            await asyncio.wait({question}, timeout=_SOON)
            if not question.done() or _says_nothing(question):
                return known
        return await asyncio.shield(question)

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        for question in self._questions.values():
            question.cancel()

    def _put(self, host: str) -> asyncio.Task[list[str]]:
        question = self._questions[host] = asyncio.create_task(self._ask(host))
        question.add_done_callback(lambda done: self._settle(host, done))
        return question

    def _settle(self, host: str, question: asyncio.Task[list[str]]) -> None:
        del self._questions[host]
        if _says_nothing(question):
            return
        self._found.pop(host, None)
        if question.exception() is None:
            self._found[host] = _Found(question.result(), asyncio.get_running_loop().time())
        if len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)

    def _known(self, host: str) -> list[str] | None:
        found = self._found.get(host)
        now = asyncio.get_running_loop().time()
        return found.addresses if found is not None and now - found.at < _OF_USE else None

    async def _ask(self, host: str) -> list[str]:
        try:
            async with asyncio.timeout(_IN_LINE):
                await self._turns.acquire()
        except TimeoutError:
            raise socket.gaierror(
                socket.EAI_AGAIN, "too many other names wait for an answer"
            ) from None
        answer = _ask_in_a_thread(host)
        try:
            return await self._answer(answer)
        finally:
            answer.cancel()

    async def _answer(self, answer: asyncio.Future[list[str]]) -> list[str]:
        """Begins with a turn, and hands it on."""
        try:
            await asyncio.wait({answer}, timeout=_SOON)
            if answer.done() or self._apart >= _APART:
                return await answer
        finally:
            self._turns.release()
        self._apart += 1
        try:
            return await answer
        finally:
            self._apart -= 1


def _says_nothing(question: asyncio.Task[list[str]]) -> bool:
    """Neither where the name leads nor that there is none."""
    if question.cancelled():
        return True
    error = question.exception()
    return isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN


def _ask_in_a_thread(host: str) -> asyncio.Future[list[str]]:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(found: list[str] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def ask() -> None:
        found = _addresses(host)
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=ask, name=f"look up {host}", daemon=True).start()
    return answer


def _addresses(host: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except OSError as error:
        return error
    except UnicodeError:
        return socket.gaierror(socket.EAI_NONAME, "not a host name")
    return [str(address[0]) for *_, address in found]
