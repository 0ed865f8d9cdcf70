"""One connection: its states, and every way an answer can end. The other end is a bare socket."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from tenure.notifiers.http.connection import Connection, State
from tenure.notifiers.http.failures import NoEndOfIt, NoLongerSending, NotHttp, Unanswered
from tenure.notifiers.http.receiving import Reply
from tests.notifiers.receiver import HINT, PATIENCE

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"
LONG = 1000.0


class Listening(Connection):
    def __init__(self, read_timeout: float) -> None:
        super().__init__(rest_bytes=1000, read_timeout=read_timeout)
        self.heard = asyncio.Event()
        """Something came."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.heard.set()


class Line(NamedTuple):
    """Both ends of a connection."""

    ours: Listening
    theirs: socket.socket

    def ask(self, seconds: float = LONG) -> asyncio.Future[Reply]:
        return self.ours.ask(REQUEST, asyncio.get_running_loop().time() + seconds)

    async def asked(self) -> None:
        """The request has arrived."""
        loop = asyncio.get_running_loop()
        got = b""
        while not got.endswith(b"\r\n\r\n"):
            got += await loop.sock_recv(self.theirs, 4096)

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.theirs, data)

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.theirs.close()


@asynccontextmanager
async def connected(read_timeout: float = LONG) -> AsyncIterator[Line]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    near.setblocking(False)
    theirs.setblocking(False)
    _, ours = await loop.create_connection(lambda: Listening(read_timeout), sock=near)
    with theirs:
        async with asyncio.timeout(PATIENCE):
            yield Line(ours, theirs)
            ours.close()
            await ours.lost


async def test_one_answer_after_the_other() -> None:
    async with connected() as line:
        for _ in range(3):
            answer = line.ask()
            await line.asked()
            await line.say(HINT + OK)
            assert (await answer).status == 200
        assert line.ours.state is State.IDLE


async def test_nobody_asks_while_an_answer_is_owed() -> None:
    async with connected() as line:
        answer = line.ask()
        with pytest.raises(RuntimeError, match="asked cannot be asked"):
            await line.ask()
        answer.cancel()
        with pytest.raises(RuntimeError, match="asked cannot be asked"):
            await line.ask()


@pytest.mark.parametrize("surplus", [b"a", HINT, OK])
async def test_what_comes_behind_an_answer_ends_the_connection(surplus: bytes) -> None:
    async with connected() as line:
        answer = line.ask()
        await line.say(OK + surplus)
        assert (await answer).status == 200
        assert line.ours.state is State.OVER
        await line.ours.lost


@pytest.mark.parametrize("what", [b"a", OK])
async def test_what_comes_unasked_ends_the_connection(what: bytes) -> None:
    async with connected() as line:
        await line.say(what)
        await line.ours.lost
        assert line.ours.state is State.OVER


async def test_an_idle_connection_that_they_close_is_over() -> None:
    async with connected() as line:
        line.theirs.close()
        await line.ours.lost
        assert line.ours.state is State.OVER


HALF = OK[: len(OK) // 2]
BODY_TO_COME = b"HTTP/1.1 503 No\r\ncontent-length: 5\r\n\r\nbusy"

ENDS: dict[str, Callable[[Line], None]] = {
    "closed": lambda line: line.theirs.close(),
    "half closed": lambda line: line.theirs.shutdown(socket.SHUT_WR),
    "reset": lambda line: line.reset(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("before", [b"", HALF, HINT])
async def test_an_end_before_the_status_is_known_is_no_answer(end: str, before: bytes) -> None:
    async with connected() as line:
        answer = line.ask()
        await line.asked()
        await line.say(before)
        ENDS[end](line)
        with pytest.raises(ConnectionResetError if end == "reset" else Unanswered):
            await answer
        assert line.ours.state is State.OVER


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_behind_the_status_changes_nothing(end: str) -> None:
    async with connected() as line:
        answer = line.ask()
        await line.asked()
        await line.say(BODY_TO_COME)
        await line.ours.heard.wait()
        ENDS[end](line)
        reply = await answer
        assert (reply.status, reply.beginning) == (503, b"busy")
        assert line.ours.state is State.OVER


@pytest.mark.parametrize("said", [b"", HALF, HINT])
async def test_no_answer_in_time(said: bytes) -> None:
    async with connected() as line:
        answer = line.ask(seconds=0.1)
        await line.say(said)
        with pytest.raises(TimeoutError):
            await answer
        assert line.ours.state is State.OVER


@pytest.mark.parametrize(("read_timeout", "seconds"), [(0.05, LONG), (LONG, 0.5)])
async def test_the_rest_is_not_waited_for(read_timeout: float, seconds: float) -> None:
    async with connected(read_timeout) as line:
        answer = line.ask(seconds)
        await line.say(BODY_TO_COME)
        assert (await answer).status == 503
        assert line.ours.state is State.OVER


async def test_an_earlier_answer_takes_no_time_from_a_later_one() -> None:
    """There is one timer; what it was set to first is over long before the second answer."""
    async with connected() as line:
        first = line.ask(seconds=0.3)
        await line.say(OK)
        await first
        second = line.ask()
        assert await asyncio.wait({second}, timeout=0.5) == (set(), {second})
        await line.asked()
        await line.say(OK)
        await second
        assert line.ours.state is State.IDLE


async def test_a_later_answer_gets_no_more_time_for_an_earlier_one() -> None:
    async with connected() as line:
        first = line.ask()
        await line.say(OK)
        await first
        with pytest.raises(TimeoutError):
            await line.ask(seconds=0.05)


@pytest.mark.parametrize(("said", "error"), [(b"what?\r\n\r\n", NotHttp), (HINT * 20, NoEndOfIt)])
async def test_no_answer_but_something_else(said: bytes, error: type[Exception]) -> None:
    async with connected() as line:
        answer = line.ask()
        await line.say(said)
        with pytest.raises(error):
            await answer
        assert line.ours.state is State.OVER


async def test_an_answer_before_they_took_the_request_is_the_last() -> None:
    """What is still to be sent would be read as the beginning of the next request."""
    async with connected() as line:
        loop = asyncio.get_running_loop()
        answer = line.ours.ask(bytes(32 * 1024 * 1024), loop.time() + LONG)
        await line.say(b"HTTP/1.1 413 Much\r\ncontent-length: 0\r\n\r\n")
        assert (await answer).status == 413
        assert line.ours.state is State.OVER


async def test_an_end_before_they_took_the_request() -> None:
    """They take no more of it either, so nobody waits until it has gone out."""
    async with connected() as line:
        loop = asyncio.get_running_loop()
        answer = line.ours.ask(bytes(32 * 1024 * 1024), loop.time() + LONG)
        line.theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(Unanswered):
            await answer


async def test_nothing_remembers_a_connection_that_is_lost() -> None:
    async with connected() as line:
        answer = line.ask()
        await line.say(OK)
        await answer
        line.ours.close()
        await line.ours.lost
        kept = weakref.ref(line.ours)
    del line
    gc.collect()
    assert kept() is None


async def test_a_late_answer_to_one_who_was_cancelled_is_nobodys() -> None:
    async with connected() as line:
        line.ask().cancel()
        await line.asked()
        await line.say(BODY_TO_COME + b"!")
        await line.ours.heard.wait()
        line.ours.close()
        assert line.ours.state is State.OVER


async def test_closing_ends_an_answer_under_way() -> None:
    async with connected() as line:
        answer = line.ask()
        line.ours.close()
        with pytest.raises(NoLongerSending):
            await answer
        line.ours.close()
        await line.ours.lost
