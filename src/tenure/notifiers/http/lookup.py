"""From names to addresses.

Asking can take the system half a minute, and nothing ends it. A thread of its own for each
question, as a daemon: the loop's pool would let a few names nobody answers for hold up everything
else that uses it, and keep the program from ending.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

LookUp = Callable[[str], Awaitable[list[str]]]
"""The addresses behind a host name. ``OSError`` if there are none."""

_AT_ONCE = 32


class SystemLookUp:
    """Asks the system, so that ``/etc/hosts`` and the like count. Bounded in threads."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, host: str) -> list[str]:
        async with self._turns:
            return await _ask_in_a_thread(host)


async def _ask_in_a_thread(host: str) -> list[str]:
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
        found = _ask(host)
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=ask, name=f"look up {host}", daemon=True).start()
    return await answer


def _ask(host: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except OSError as error:
        return error
    except UnicodeError:
        return socket.gaierror(socket.EAI_NONAME, "not a host name")
    return [str(address[0]) for *_, address in found]
