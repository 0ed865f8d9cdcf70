"""What a receiver may send: bounded before it is parsed, for parsing stalls all runs."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.notifiers.http import HttpSender
from tenure.notifiers.http.receiving import BoundedAnswers, NoEndOfIt
from tests.notifiers.deliveries import HERE, NewSender, delivery
from tests.notifiers.receiver import HINT, PATIENCE, Receiver, head

PATIENT = replace(HERE, read_timeout=1000, total_timeout=1000)
"""So patient that only a bound in size ends what has no end."""


async def test_interim_answers_without_end_are_no_answer(
    new_sender: NewSender, receiver: Receiver
) -> None:
    async with asyncio.timeout(PATIENCE):
        refused = await new_sender(PATIENT).send(delivery(receiver.url("interim")))
        await receiver.alone()
    assert refused is not None
    assert (refused.error, refused.again) == ("it sends without end and never answers", True)


async def test_a_few_interim_answers_delay_nothing_and_keep_the_connection(
    sender: HttpSender, receiver: Receiver
) -> None:
    for _ in range(2):
        assert await sender.send(delivery(receiver.url("hints?of=3"))) is None
    assert receiver.connections == 1


@pytest.mark.parametrize("vice", ["chatter", "crumbs"])
async def test_what_follows_an_answer_changes_nothing_and_ends_the_connection(
    vice: str, new_sender: NewSender, receiver: Receiver
) -> None:
    async with asyncio.timeout(PATIENCE):
        refused = await new_sender(PATIENT).send(delivery(receiver.url(vice)))
        await receiver.alone()
    assert (refused and refused.error) == (
        None if vice == "chatter" else f"answered 500: {'c' * 160}…"
    )


@pytest.mark.parametrize("more", [b"ok", b"ok\r\n\r\n", HINT, b"HTTP/1.1 500 No\r\n\r\n"])
async def test_a_status_that_allows_no_body_counts_though_one_came(
    more: bytes, sender: HttpSender, receiver: Receiver
) -> None:
    said = (head(204, {}) + more).hex()
    assert await sender.send(delivery(receiver.url(f"raw?hex={said}"))) is None


# -- the protocol itself --------------------------------------------------------------------------


class Counting(BoundedAnswers):
    heads = 0

    def feed_data(self, data: Any, size: int = 0) -> None:
        self.heads += 1
        super().feed_data(data, size)


async def fed(*came: bytes) -> Counting:
    """After a request was sent and all this came; the connection is still open if it may be."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        transport, protocol = await loop.create_connection(
            lambda: Counting(loop, rest_bytes=1000), sock=ours
        )
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)
        for data in came:
            protocol.data_received(data)
        closed = protocol.closed
        assert closed is not None
        transport.abort()
        await closed
    return protocol


async def test_no_more_is_parsed_than_is_allowed_however_much_comes_at_once() -> None:
    protocol = await fed(HINT * 10_000)
    assert protocol.heads == 9
    with pytest.raises(NoEndOfIt):
        await protocol.read()


async def test_a_head_without_end_is_left_at_a_bound() -> None:
    line = b"x-more: " + b"a" * 8000 + b"\r\n"
    protocol = await fed(b"HTTP/1.1 200 OK\r\n", *[line] * 10, b"\r\n")
    with pytest.raises(NoEndOfIt):
        await protocol.read()


async def test_after_the_answer_nothing_is_parsed() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    protocol = await fed(answer, HINT * 10_000)
    assert protocol.heads == 1
    assert protocol.should_close
    message, payload = await protocol.read()
    assert (message.code, await payload.read()) == (200, b"ok")


@pytest.mark.parametrize("size", range(1, 9))
async def test_however_an_answer_is_cut_it_is_the_same(size: int) -> None:
    whole = HINT + b"HTTP/1.1 202 Yes\r\nx-a: b\r\ncontent-length: 6\r\n\r\nthanks"
    protocol = await fed(*(whole[start : start + size] for start in range(0, len(whole), size)))
    message, payload = await protocol.read()
    assert (message.code, message.headers["x-a"], await payload.read()) == (202, "b", b"thanks")
