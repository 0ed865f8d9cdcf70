"""What a receiver may send: bounded before it is parsed, for parsing stalls all runs."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tenure.notifiers.http import HttpSender
from tenure.notifiers.http.failures import NoEndOfIt, NotHttp
from tenure.notifiers.http.receiving import Answers, Reply
from tenure.notifiers.http.wording import LOOKED_AT
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
    for _ in range(5):
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


# -- the reader itself ----------------------------------------------------------------------------


class Counting(Answers):
    heads = 0

    def on_headers_complete(self) -> None:
        self.heads += 1
        super().on_headers_complete()


def test_no_more_is_parsed_than_is_allowed_however_much_comes_at_once() -> None:
    answers = Counting(rest_bytes=1000)
    with pytest.raises(NoEndOfIt):
        answers.feed(HINT * 10_000)
    assert answers.heads == 9


def test_a_head_without_end_is_left_at_a_bound() -> None:
    answers = Counting(rest_bytes=1000)
    line = b"x-more: " + b"a" * 8000 + b"\r\n"
    assert not answers.feed(b"HTTP/1.1 200 OK\r\n" + line * 8)
    with pytest.raises(NoEndOfIt):
        answers.feed(line + b"\r\n")


@pytest.mark.parametrize("together", [True, False])
def test_after_the_answer_nothing_is_parsed(together: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    answers = Counting(rest_bytes=1000)
    if not together:
        assert not answers.feed(answer[:-2])
    assert answers.feed((answer if together else b"ok") + HINT * 10_000)
    assert (answers.heads, answers.goes_on) == (1, False)
    assert (answers.reply().status, answers.reply().beginning) == (200, b"ok")


@pytest.mark.parametrize("more", [b"HTTP/1.1 500 No\r\n\r\n", HINT, b"what?"])
def test_the_first_answer_counts(more: bytes) -> None:
    answers = Counting(rest_bytes=1000)
    assert answers.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" + more)
    assert (answers.reply().status, answers.goes_on) == (200, False)


def test_the_rest_is_parsed_up_to_its_bound_and_no_further() -> None:
    answers = Answers(rest_bytes=1000)
    head = b"HTTP/1.1 500 No\r\ncontent-length: 5000\r\n\r\n"
    assert not answers.feed(head + b"a" * 999)
    assert answers.feed(b"bc" * 2000)
    assert (answers.whole, answers.goes_on) == (False, False)
    assert answers.reply().beginning == b"a" * 999 + b"b"


def test_no_more_is_kept_than_is_looked_at() -> None:
    answers = Answers(rest_bytes=100_000)
    answers.feed(b"HTTP/1.1 500 No\r\ncontent-length: 91000\r\n\r\n" + b"a" * 1000)
    assert answers.feed(b"a" * 90_000)
    assert (answers.goes_on, len(answers.reply().beginning)) == (True, LOOKED_AT)


def test_every_answer_has_the_same_bounds() -> None:
    answers = Answers(rest_bytes=1000)
    line = b"x-more: " + b"a" * 8000 + b"\r\n"
    for _ in range(5):
        answers.expect()
        answer = b"HTTP/1.1 500 No\r\ncontent-length: 600\r\n" + line * 4 + b"\r\n" + b"a" * 600
        assert answers.feed(answer)
        assert answers.goes_on


@pytest.mark.parametrize("size", range(1, 9))
def test_however_an_answer_is_cut_it_is_the_same(size: int) -> None:
    whole = (
        HINT + b"HTTP/1.1 202 Yes, please\r\nLocation: b\r\nlocation: c\r\n"
        b"transfer-encoding: chunked\r\n\r\n6\r\nthanks\r\n0\r\nretry-after: 5\r\n\r\n"
    )
    answers = Answers(rest_bytes=1000)
    for _ in range(2):
        answers.expect()
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        assert [answers.feed(piece) for piece in pieces] == [*[False] * (len(pieces) - 1), True]
        assert answers.goes_on
        assert answers.reply() == Reply(202, "Yes, please", {b"location": b"b"}, b"thanks")


KEPT = [
    b"HTTP/1.1 204 OK\r\n\r\n",
    b"HTTP/1.1 304 OK\r\ncontent-length: 7\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nx-odd: \x01\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 \r\nok\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
]
ENDED = [
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 204 OK\r\nConnection: Close\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nwhat?\r\n",
]


@pytest.mark.parametrize(
    ("answer", "goes_on"), [*((each, True) for each in KEPT), *((each, False) for each in ENDED)]
)
def test_whether_the_connection_serves_for_the_next(answer: bytes, goes_on: bool) -> None:
    answers = Answers(rest_bytes=1000)
    assert answers.feed(answer)
    assert answers.goes_on is goes_on


def test_an_answer_that_only_the_end_of_the_connection_ends() -> None:
    answers = Answers(rest_bytes=1000)
    assert not answers.feed(b"HTTP/1.1 500 No\r\n\r\nuntil I")
    assert not answers.feed(b" close")
    assert answers.reply() == Reply(500, "No", {}, b"until I close")


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01 what \x1b[31m would you like?\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(NotHttp) as refused:
        Answers(rest_bytes=1000).feed(answer)
    assert "would you like" not in str(refused.value)
