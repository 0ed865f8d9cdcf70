"""Names are resolved by the system, and those nobody answers for hold up no others."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenure.notifiers.http import lookup
from tenure.notifiers.http.lookup import SystemLookUp
from tests.notifiers.receiver import PATIENCE

HERE = ["127.0.0.1"]


class NameServer:
    """In place of the system's. Names that begin with ``hang`` are not answered before ``answer``
    is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []
        self.hanging = threading.Semaphore(0)
        self.says: list[str] | OSError = HERE

    def __call__(self, host: str, *args: Any, **how: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        if host.startswith("hang"):
            self.hanging.release()
            self.answer.wait(PATIENCE)
        if isinstance(self.says, OSError):
            raise self.says
        return [(0, 0, 0, "", (address, 0)) for address in self.says]

    async def hang(self, look_up: SystemLookUp, count: int) -> list[asyncio.Task[list[str]]]:
        """As many names are asked for, and none of them answered."""
        asked = [asyncio.create_task(look_up(f"hang{number}")) for number in range(count)]
        for _ in asked:
            assert await asyncio.to_thread(self.hanging.acquire, timeout=PATIENCE)
        return asked


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server)
    yield server
    server.answer.set()


async def test_the_system_is_asked() -> None:
    look_up = SystemLookUp()
    assert set(await look_up("localhost")) <= {"127.0.0.1", "::1"}
    assert await look_up("127.0.0.1") == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a" * 64 + ".example", "."])
async def test_what_can_be_no_name_is_an_error_like_any_other(host: str) -> None:
    with pytest.raises(socket.gaierror):
        await SystemLookUp()(host)


async def test_a_name_is_asked_for_by_one_thread_at_a_time(server: NameServer) -> None:
    look_up = SystemLookUp()
    asked = [asyncio.create_task(look_up("hang")) for _ in range(50)]
    assert await asyncio.to_thread(server.hanging.acquire, timeout=PATIENCE)
    asked[0].cancel()  # gave up; the others wait on
    server.answer.set()
    assert await asyncio.gather(*asked[1:]) == [HERE] * 49
    assert server.asked == ["hang"]


async def test_names_nobody_answers_for_do_not_hold_up_the_next(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_SOON", 0.01)
    look_up = SystemLookUp()
    hanging = await server.hang(look_up, 3 * lookup._AT_ONCE)
    assert await look_up("healthy.example") == HERE
    assert not any(each.done() for each in hanging)
    look_up.close()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_threads_are_bounded_and_a_name_without_a_turn_is_given_up(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_AT_ONCE": 3, "_APART": 4, "_SOON": 0.01, "_IN_LINE": 0.2}.items():
        monkeypatch.setattr(lookup, name, value)
    look_up = SystemLookUp()
    hanging = await server.hang(look_up, 7)
    with pytest.raises(socket.gaierror, match="too many other names"):
        await look_up("stranger.example")
    assert len(server.asked) == 7
    server.answer.set()
    assert await asyncio.gather(*hanging) == [HERE] * 7
    assert await look_up("stranger.example") == HERE


def nothing_comes(server: NameServer, look_up: SystemLookUp) -> None:
    """No turn is free, and none will be."""
    look_up._turns = asyncio.Semaphore(0)


def for_now(server: NameServer, look_up: SystemLookUp) -> None:
    server.says = socket.gaierror(socket.EAI_AGAIN, "try again")


@pytest.mark.parametrize("trouble", [nothing_comes, for_now])
async def test_a_name_that_was_found_before_is_found_while_nobody_answers(
    trouble: Callable[[NameServer, SystemLookUp], None],
    server: NameServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "_SOON", 0.05)
    look_up = SystemLookUp()
    assert await look_up("healthy.example") == HERE
    trouble(server, look_up)
    for _ in range(2):
        assert await look_up("healthy.example") == HERE
    look_up.close()


async def test_what_was_found_is_of_use_for_ten_minutes(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = SystemLookUp()
    await look_up("healthy.example")
    server.says = socket.gaierror(socket.EAI_AGAIN, "try again")
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 590)
    assert await look_up("healthy.example") == HERE
    monkeypatch.setattr(loop, "time", lambda: now() + 610)
    with pytest.raises(socket.gaierror):
        await look_up("healthy.example")


async def test_a_newer_answer_takes_the_place_of_an_older_one(server: NameServer) -> None:
    look_up = SystemLookUp()
    await look_up("healthy.example")
    server.says = ["127.0.0.2"]
    assert await look_up("healthy.example") == ["127.0.0.2"]
    server.says = socket.gaierror(socket.EAI_NONAME, "no such name")
    with pytest.raises(socket.gaierror, match="no such name"):
        await look_up("healthy.example")
    server.says = socket.gaierror(socket.EAI_AGAIN, "try again")
    with pytest.raises(socket.gaierror, match="try again"):
        await look_up("healthy.example")


async def test_names_that_are_remembered_are_bounded(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_REMEMBERED", 10)
    look_up = SystemLookUp()
    for number in range(15):
        await look_up(f"host{number}")
    assert list(look_up._found) == [f"host{number}" for number in range(5, 15)]


NAMES_NOBODY_ANSWERS_FOR = """
import asyncio, socket, threading
from tenure.notifiers.http import HttpSender, HttpSettings
from tests.notifiers.deliveries import delivery

socket.getaddrinfo = lambda *asked, **how: threading.Event().wait()

async def main():
    sender = HttpSender(HttpSettings(total_timeout=0.1))
    print((await sender.send(delivery("http://hooks.example/"))).error)
    await sender.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_name_nobody_answers_for_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NAMES_NOBODY_ANSWERS_FOR],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("no answer within 0.1 s\n", "")
