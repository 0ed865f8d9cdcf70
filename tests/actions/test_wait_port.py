"""Ports that open and close while somebody waits for it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.actions import wait as wait_port
from tenure.actions.wait import Address, host_in
from tenure.model.errors import InvalidArguments
from tenure.model.status import HostStatus
from tenure.ports.execution import CheckResult, Endpoint, TaskResult
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import HERE, new_task
from tests.free_port import free_port
from tests.transports.keeping import Kept

NOWHERE = UnreachableTransport()


def task(port: int, target: Endpoint = HERE, **args: Any) -> Any:
    return new_task("wait.port", {"port": port, "interval": "1ms", **args}, host=target)


async def wait(port: int, kept: Kept | None = None, **args: Any) -> TaskResult:
    args = {"host": "127.0.0.1", **args}
    return await new_registry()["wait.port"].apply(task(port, **args), NOWHERE, kept or Kept())


async def serve(port: int = 0) -> asyncio.Server:
    return await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def test_a_port_that_is_open() -> None:
    async with await serve() as server:
        kept, port = Kept(), port_of(server)
        assert await wait(port, kept) == TaskResult(changed=False)
        assert kept.stdout == f"port {port} at 127.0.0.1 is open\n".encode()


def upon_refusal(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[object]]) -> None:
    """``then`` is done when an attempt has failed, before the next one."""
    knock = wait_port.knock

    async def knocking(address: Address) -> None:
        try:
            await knock(address)
        except ConnectionRefusedError:
            await then()
            raise

    monkeypatch.setattr(wait_port, "knock", knocking)


async def test_a_port_that_opens_after_the_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    servers: list[asyncio.Server] = []

    async def opens() -> None:
        servers.append(await serve(port))

    upon_refusal(monkeypatch, opens)
    assert (await wait(port)).status is HostStatus.SUCCESS
    [server] = servers
    server.close()
    await server.wait_closed()


async def test_a_port_that_closes_after_the_first_attempt() -> None:
    servers: list[asyncio.Server] = []

    def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        servers[0].close()
        writer.close()

    servers.append(await asyncio.start_server(close, "127.0.0.1", 0))
    assert await wait(port_of(servers[0]), state="closed") == TaskResult(changed=False)
    await servers[0].wait_closed()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "why"), [("open", "Connection refused"), ("closed", "it is open")]
)
async def test_a_port_that_stays_as_it_is(state: str, why: str) -> None:
    async with await serve() as server:
        port = port_of(server) if state == "closed" else free_port()
        result = await wait(port, state=state, timeout="100ms")
    assert (result.status, result.kind) == (HostStatus.FAILED, "timeout")
    assert result.message == f"port {port} at 127.0.0.1 was not {state} within 100ms: {why}"


@pytest.mark.slow
@pytest.mark.usefixtures("unknown_names")
@pytest.mark.parametrize("state", ["open", "closed"])
async def test_a_name_nobody_knows_is_neither_open_nor_closed(state: str) -> None:
    result = await wait(80, host="web9", state=state, timeout="100ms")
    assert result.message == (
        f"port 80 at web9 was not {state} within 100ms: its name cannot be resolved: "
        "Name or service not known"
    )


# -- what says nothing about the port -------------------------------------------------------------


def failing_with(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """The host has an address for each of these, and so does every attempt end."""
    errors = [OSError(number, os.strerror(number)) for number in numbers]

    async def addresses(host: str, port: int) -> list[int]:
        return list(range(len(errors)))

    async def knock(address: int) -> None:
        raise errors[address]

    monkeypatch.setattr(wait_port, "addresses_of", addresses)
    monkeypatch.setattr(wait_port, "knock", knock)


@pytest.mark.parametrize("state", ["open", "closed"])
@pytest.mark.parametrize(
    "numbers",
    [
        (errno.EMFILE,),
        (errno.EACCES,),
        (errno.EAFNOSUPPORT, errno.ENETUNREACH),
        (errno.ECONNREFUSED, errno.EMFILE),
    ],
)
async def test_who_cannot_ask_knows_nothing(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], state: str
) -> None:
    failing_with(monkeypatch, *numbers)
    foreseen = await new_registry()["wait.port"].check(task(80, host="web9", state=state), NOWHERE)
    why = os.strerror(numbers[-1])
    assert foreseen == CheckResult(
        summary=f"would wait until port 80 at web9 is {state}; now it is not: "
        f"it cannot be asked from here: {why}"
    )


@pytest.mark.parametrize(
    "numbers",
    [
        (errno.ECONNREFUSED,),
        (errno.EADDRNOTAVAIL, errno.ECONNREFUSED),
        (errno.ECONNREFUSED, errno.ENETUNREACH),
    ],
)
async def test_who_is_turned_away_at_every_address_there_is_a_way_to(
    monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    """A machine without IPv6 has no way to some."""
    failing_with(monkeypatch, *numbers)
    assert await wait(80, state="closed") == TaskResult(changed=False)


@pytest.mark.slow
async def test_every_attempt_lets_go_of_its_connection() -> None:
    left: list[asyncio.Task[bytes]] = []

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left.append(asyncio.ensure_future(reader.read()))
        left[-1].add_done_callback(lambda ended: writer.close())

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        await wait(port_of(server), state="closed", timeout="100ms")
        async with asyncio.timeout(20):
            await asyncio.gather(*left, return_exceptions=True)
    assert len(left) > 1


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("local", "localhost"),
        ("deploy@web1", "web1"),
        ("ssh://deploy@10.0.0.1:22", "10.0.0.1"),
        ("ssh://[2001:db8::1]:22", "2001:db8::1"),
        ("http://web2:7072/agent", "web2"),
    ],
)
def test_the_host_is_the_steps_own_if_none_is_given(address: str, host: str) -> None:
    assert host_in(address) == host


@pytest.mark.parametrize("state", ["open", "closed"])
async def test_a_plan_says_what_is_waited_for_and_whether_it_is_so(state: str) -> None:
    foresee = new_registry()["wait.port"].check
    async with await serve() as server:
        port = port_of(server)
        wanted = task(port, host="127.0.0.1", state=state, timeout="1m")
        while_open = await foresee(wanted, NOWHERE)
    while_closed = await foresee(wanted, NOWHERE)
    so, not_so = (while_open, while_closed)[:: 1 if state == "open" else -1]
    why = "Connection refused" if state == "open" else "it is open"
    said = f"port {port} at 127.0.0.1 is {state}"
    assert so == CheckResult(changed=False, summary=f"{said} already")
    assert not_so == CheckResult(summary=f"would wait until {said} within 1m; now it is not: {why}")


@pytest.mark.parametrize("address", ["ssh://", "ssh://[x", ""])
async def test_an_address_without_a_host(address: str) -> None:
    with pytest.raises(InvalidArguments, match="give one with `host`"):
        await new_registry()["wait.port"].check(
            task(80, Endpoint(name="a", address=address)), NOWHERE
        )
