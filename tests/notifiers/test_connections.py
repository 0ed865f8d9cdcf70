"""Connections: shared, trusted, bounded, and gone when they are not needed any more."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from tenure.notifiers.http import HttpSender
from tenure.notifiers.http.guard import LookUp
from tests.notifiers.deliveries import HERE, NewSender, delivery, no
from tests.notifiers.receiver import PATIENCE, Receiver

pytestmark = pytest.mark.slow

# -- reuse ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["ok", "204", "503?body=busy", "410?body=gone"])
async def test_one_connection_serves_many_deliveries(
    path: str, sender: HttpSender, receiver: Receiver
) -> None:
    for _ in range(5):
        await sender.send(delivery(receiver.url(path)))
    assert [got.connection for got in receiver.received] == [1] * 5


@pytest.mark.parametrize("path", ["endless", "drop", "reset", "garbage"])
async def test_a_connection_with_more_to_say_is_not_used_again(
    path: str, sender: HttpSender, receiver: Receiver
) -> None:
    await sender.send(delivery(receiver.url(path)))
    assert await sender.send(delivery(receiver.url("ok"))) is None
    assert [got.connection for got in receiver.received] == [1, 2]


async def test_a_callback_that_crosses_a_close_is_for_the_relay_to_send_again(
    sender: HttpSender, receiver: Receiver
) -> None:
    """It may have arrived, so it is not sent twice here."""
    assert await sender.send(delivery(receiver.url("ok"))) is None
    error = no(await sender.send(delivery(receiver.url("drop"))), again=True)
    assert error == "it closed the connection without an answer"
    assert [got.connection for got in receiver.received] == [1, 1]


async def test_there_are_never_more_than_allowed(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(replace(HERE, connections=3))
    sent = [sender.send(delivery(receiver.url("ok"))) for _ in range(50)]
    assert await asyncio.gather(*sent) == [None] * 50
    assert receiver.connections <= 3


async def test_a_host_that_hangs_does_not_use_up_the_pool(
    new_sender: NewSender, receiver: Receiver
) -> None:
    sender = new_sender(replace(HERE, connections=4, connections_per_host=2))
    hanging = [asyncio.create_task(sender.send(delivery(receiver.url("hang")))) for _ in range(9)]
    await receiver.got(2)
    async with Receiver(host="127.0.0.2") as other, asyncio.timeout(PATIENCE):
        assert await sender.send(delivery(other.url("ok"))) is None
    assert receiver.connections == 2
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_where_a_name_leads_is_kept_for_a_while(
    new_sender: NewSender, receiver: Receiver
) -> None:
    asked: list[str] = []

    async def look_up(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    sender = new_sender(look_up=look_up)
    for _ in range(3):
        await sender.send(delivery(receiver.url("drop", host="hooks.example")))
    assert (asked, receiver.connections) == (["hooks.example"], 3)


# -- several addresses ----------------------------------------------------------------------------


@contextmanager
def deaf(address: str, port: int = 0) -> Iterator[int]:
    """Its backlog is full, so that no connection comes about."""
    with socket.socket() as listening:
        listening.bind((address, port))
        listening.listen(0)
        with socket.create_connection(listening.getsockname()):
            yield listening.getsockname()[1]


def leads_to(*addresses: str) -> LookUp:
    async def look_up(host: str) -> list[str]:
        return list(addresses)

    return look_up


async def test_an_address_that_says_nothing_holds_up_the_others_for_a_moment(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """Far less than the time each of them has."""
    patient = replace(HERE, connect_timeout=1000, total_timeout=10)
    sender = new_sender(patient, look_up=leads_to("127.0.0.3", "127.0.0.1"))
    with deaf("127.0.0.3", receiver.port):
        assert await sender.send(delivery(receiver.url("ok", host="hooks.example"))) is None


# -- nothing is left ------------------------------------------------------------------------------


@pytest.mark.parametrize("vice", ["hang", "trickle-headers"])
async def test_cancelled_while_it_waits_for_an_answer(
    vice: str, sender: HttpSender, receiver: Receiver
) -> None:
    task = asyncio.create_task(sender.send(delivery(receiver.url(vice))))
    await receiver.got(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.alone()


async def test_no_connection_comes_about(new_sender: NewSender) -> None:
    sender = new_sender(replace(HERE, connect_timeout=0.2))
    with deaf("127.0.0.1") as port:
        error = no(await sender.send(delivery(f"http://127.0.0.1:{port}/")), again=True)
    assert error == "no connection within 0.2 s"


async def test_cancelled_before_there_is_a_connection(sender: HttpSender) -> None:
    with deaf("127.0.0.1") as port:
        task = asyncio.create_task(sender.send(delivery(f"http://127.0.0.1:{port}/")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.1)
    assert task.cancelled()


async def test_closing_ends_what_is_under_way_or_waits_for_a_connection_or_a_name(
    new_sender: NewSender, receiver: Receiver
) -> None:
    asked = asyncio.Event()

    async def silent(host: str) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    sender = new_sender(replace(HERE, connections_per_host=1), look_up=silent)
    urls = [receiver.url("hang"), receiver.url("ok"), receiver.url("ok", host="hooks.example")]
    tasks = [asyncio.create_task(sender.send(delivery(url))) for url in urls]
    await receiver.got(1)
    await asked.wait()
    await sender.close()
    for refused in await asyncio.gather(*tasks):
        assert refused is not None
        assert refused.again
        assert refused.error == "stopped while sending: this process is about to end"
    await receiver.alone()


async def test_closed_it_sends_nothing_more(sender: HttpSender, receiver: Receiver) -> None:
    await sender.close()
    await sender.close()
    no(await sender.send(delivery(receiver.url("ok"))), again=True)
    assert receiver.connections == 0


# -- TLS ------------------------------------------------------------------------------------------


async def test_over_tls(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    async with Receiver(tls=server_tls) as receiver:
        sender = new_sender(tls=trusting_tls, look_up=leads_to("127.0.0.1"))
        for host in ("localhost", "localhost", "localhost."):
            assert await sender.send(delivery(receiver.url("ok", host=host))) is None
        assert [got.connection for got in receiver.received] == [1, 1, 2]


async def test_a_certificate_that_is_not_trusted(
    sender: HttpSender, server_tls: ssl.SSLContext
) -> None:
    async with Receiver(tls=server_tls) as receiver:
        refused = await sender.send(delivery(receiver.url("ok", host="localhost")))
        assert refused is not None
        assert refused.error == "its TLS certificate is not accepted: self-signed certificate"
        assert (refused.again, receiver.received) == (True, [])


async def test_a_certificate_of_another_host(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    async with Receiver(tls=server_tls) as receiver:
        refused = await new_sender(tls=trusting_tls).send(delivery(receiver.url("ok")))
        assert refused is not None
        assert refused.error.startswith("its TLS certificate is not accepted: IP address mismatch")
        assert (refused.again, receiver.received) == (True, [])


async def test_plain_text_where_tls_is_expected(sender: HttpSender) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 this is no TLS port\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        refused = await sender.send(delivery(f"https://localhost:{port}/"))
    assert refused is not None
    assert refused.error.startswith("no TLS connection: ")
    assert refused.again


async def test_a_handshake_that_is_not_answered(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(replace(HERE, connect_timeout=0.2))
    error = no(
        await sender.send(delivery(receiver.url("ok").replace("http:", "https:"))), again=True
    )
    assert error == "no connection within 0.2 s"


async def test_an_address_without_tls_is_followed_by_the_next(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    met: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(await reader.read(1))
        writer.write(b"HTTP/1.1 400 this is no TLS port\r\n\r\n")
        writer.close()

    async with (
        Receiver(tls=server_tls) as receiver,
        await asyncio.start_server(refuse, "127.0.0.2", receiver.port),
    ):
        sender = new_sender(tls=trusting_tls, look_up=leads_to("127.0.0.2", "127.0.0.1"))
        assert await sender.send(delivery(receiver.url("ok", host="localhost"))) is None
        assert (len(met), len(receiver.received)) == (1, 1)
