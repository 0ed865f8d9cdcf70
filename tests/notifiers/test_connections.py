"""Connections: shared, trusted, bounded, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from tenure.notifiers.http import HttpSender
from tests.notifiers.deliveries import HERE, NewSender, delivery
from tests.notifiers.receiver import PATIENCE, Receiver
from tests.notifiers.timing import move_clock

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
    """It may have arrived, so nobody here sends it twice."""
    assert await sender.send(delivery(receiver.url("ok"))) is None
    refused = await sender.send(delivery(receiver.url("drop")))
    assert refused is not None
    assert (refused.error, refused.again) == ("it closed the connection without an answer", True)
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


async def test_an_idle_connection_is_used_for_four_seconds(
    sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Common servers close it after five, and a callback that crosses the close is lost."""
    for passed, connection in ((0.0, 1), (3.5, 1), (4.5, 2)):
        move_clock(monkeypatch, passed)
        assert await sender.send(delivery(receiver.url("ok"))) is None
        assert receiver.received[-1].connection == connection


async def test_where_a_name_leads_is_asked_again_after_ten_seconds(
    new_sender: NewSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that moves is found again soon."""
    asked: list[str] = []

    async def look_up(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    sender = new_sender(look_up=look_up)
    for passed, questions in ((0.0, 1), (9.0, 1), (2.0, 2)):
        move_clock(monkeypatch, passed)
        await sender.send(delivery(receiver.url("drop", host="hooks.example")))
        assert len(asked) == questions


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


async def test_cancelled_while_it_reads_the_rest(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(replace(HERE, read_timeout=PATIENCE * 2, total_timeout=PATIENCE * 2))
    task = asyncio.create_task(sender.send(delivery(receiver.url("trickle-body"))))
    await asyncio.wait({task}, timeout=0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.alone()


@contextmanager
def deaf_port() -> Iterator[int]:
    """Its backlog is full, so that nobody's connection comes about."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        with socket.create_connection(listening.getsockname()):
            yield listening.getsockname()[1]


async def test_no_connection_comes_about(new_sender: NewSender) -> None:
    sender = new_sender(replace(HERE, connect_timeout=0.2))
    with deaf_port() as port:
        refused = await sender.send(delivery(f"http://127.0.0.1:{port}/"))
    assert refused is not None
    assert (refused.error, refused.again) == ("no connection within 0.2 s", True)


async def test_cancelled_before_there_is_a_connection(sender: HttpSender) -> None:
    with deaf_port() as port:
        task = asyncio.create_task(sender.send(delivery(f"http://127.0.0.1:{port}/")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.1)
    assert task.cancelled()


async def test_closing_ends_what_is_under_way(sender: HttpSender, receiver: Receiver) -> None:
    task = asyncio.create_task(sender.send(delivery(receiver.url("hang"))))
    await receiver.got(1)
    await sender.close()
    refused = await task
    assert refused is not None
    assert refused.again
    await receiver.alone()


async def test_closed_it_sends_nothing_more(sender: HttpSender, receiver: Receiver) -> None:
    await sender.close()
    await sender.close()
    refused = await sender.send(delivery(receiver.url("ok")))
    assert refused is not None
    assert (refused.again, receiver.connections) == (True, 0)


# -- TLS ------------------------------------------------------------------------------------------


async def test_over_tls(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    async with Receiver(tls=server_tls) as receiver:
        sender = new_sender(tls=trusting_tls)
        for _ in range(2):
            assert await sender.send(delivery(receiver.url("ok", host="localhost"))) is None
        assert [got.connection for got in receiver.received] == [1, 1]


async def test_a_name_with_a_dot_at_its_end_over_tls(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    async def look_up(host: str) -> list[str]:
        return ["127.0.0.1"]

    async with Receiver(tls=server_tls) as receiver:
        sender = new_sender(tls=trusting_tls, look_up=look_up)
        assert await sender.send(delivery(receiver.url("ok", host="localhost."))) is None


@pytest.mark.parametrize("vice", ["chatter", "crumbs", "drop", "reset", "garbage", "hang"])
async def test_vices_over_tls(
    vice: str, new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    settings = replace(HERE, connections=1, read_timeout=1000, total_timeout=2.0)
    async with Receiver(tls=server_tls) as receiver:
        sender = new_sender(settings, tls=trusting_tls)
        await sender.send(delivery(receiver.url(vice, host="localhost")))
        assert await sender.send(delivery(receiver.url("ok", host="localhost"))) is None
        await sender.close()
        await receiver.alone()
        assert [got.connection for got in receiver.received] == [1, 2]


async def test_a_certificate_nobody_vouches_for(
    sender: HttpSender, server_tls: ssl.SSLContext
) -> None:
    async with Receiver(tls=server_tls) as receiver:
        refused = await sender.send(delivery(receiver.url("ok", host="localhost")))
        assert refused is not None
        assert refused.error == "its TLS certificate is not accepted: self-signed certificate"
        assert (refused.again, receiver.received) == (True, [])


async def test_a_certificate_of_somebody_else(
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
    refused = await sender.send(delivery(receiver.url("ok").replace("http:", "https:")))
    assert refused is not None
    assert (refused.error, refused.again) == ("no connection within 0.2 s", True)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_peer_that_never_says_goodbye_is_not_waited_for(
    answers: bool,
    new_sender: NewSender,
    server_tls: ssl.SSLContext,
    trusting_tls: ssl.SSLContext,
) -> None:
    """Neither when the connection is idle, which we end politely, nor in the middle of it."""

    def shake_hands_and_fall_silent(listening: socket.socket) -> bytes:
        connection, _ = listening.accept()
        with server_tls.wrap_socket(connection, server_side=True) as tls:
            if answers:
                tls.recv(65536)
                tls.sendall(b"HTTP/1.1 204 OK\r\n\r\n")
            with socket.socket(fileno=os.dup(tls.fileno())) as below_tls:
                below_tls.settimeout(PATIENCE)
                while taken := below_tls.recv(4096):
                    pass
            return taken

    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = asyncio.create_task(asyncio.to_thread(shake_hands_and_fall_silent, listening))
        sender = new_sender(replace(HERE, total_timeout=0.5), tls=trusting_tls)
        refused = await sender.send(delivery(f"https://localhost:{listening.getsockname()[1]}/"))
        assert (refused is None) is answers
        await sender.close()
        assert await peer == b""


async def test_who_has_no_certificate_at_one_address_may_have_it_at_the_next(
    new_sender: NewSender, server_tls: ssl.SSLContext, trusting_tls: ssl.SSLContext
) -> None:
    met: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(await reader.read(1))
        writer.write(b"HTTP/1.1 400 this is no TLS port\r\n\r\n")
        writer.close()

    async def look_up(host: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with (
        Receiver(tls=server_tls) as receiver,
        await asyncio.start_server(refuse, "127.0.0.2", receiver.port),
    ):
        sender = new_sender(tls=trusting_tls, look_up=look_up)
        assert await sender.send(delivery(receiver.url("ok", host="localhost"))) is None
        assert (len(met), len(receiver.received)) == (1, 1)
