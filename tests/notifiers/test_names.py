"""Where names lead: judged, kept for a while, and each address in its turn."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from tenure.notifiers.http.addresses import off_limits
from tenure.notifiers.http.failures import NotResolved
from tenure.notifiers.http.guard import OffLimits, anywhere
from tenure.notifiers.http.names import KEPT, Names
from tests.notifiers.deliveries import HERE, NewSender, delivery
from tests.notifiers.receiver import Receiver
from tests.notifiers.timing import move_clock

ELSEWHERE = "127.0.0.3"


class Asked:
    """Knows where some names lead, and remembers who was asked for."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses
        self.names: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.names.append(host)
        if not self._addresses:
            raise socket.gaierror(socket.EAI_NONAME, "never heard of it")
        return list(self._addresses)


async def test_a_name_is_asked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = Asked("8.8.8.8")
    names = Names(look_up, off_limits)
    for passed, questions in ((0.0, 1), (KEPT - 1, 1), (2.0, 2)):
        move_clock(monkeypatch, passed)
        assert await names("hooks.example") == ["8.8.8.8"]
        assert len(look_up.names) == questions


async def test_every_address_is_the_first_in_its_turn() -> None:
    names = Names(Asked("8.8.8.8", "8.8.4.4", "10.0.0.1"), off_limits)
    assert [await names("hooks.example") for _ in range(3)] == [
        ["8.8.8.8", "8.8.4.4"],
        ["8.8.4.4", "8.8.8.8"],
        ["8.8.8.8", "8.8.4.4"],
    ]


async def test_a_no_is_not_kept() -> None:
    for look_up, error in ((Asked(), NotResolved), (Asked("10.0.0.1"), OffLimits)):
        names = Names(look_up, off_limits)
        for _ in range(2):
            with pytest.raises(error):
                await names("hooks.example")
        assert len(look_up.names) == 2


async def test_addresses_are_not_asked_for() -> None:
    look_up = Asked("8.8.8.8")
    names = Names(look_up, anywhere)
    for literal in ("127.0.0.1", "::1", "fe80::1%lo"):
        assert await names(literal) == [literal]
    assert look_up.names == []


async def test_no_more_names_are_kept_than_anybody_needs() -> None:
    look_up = Asked("8.8.8.8")
    names = Names(look_up, anywhere)
    for number in range(1025):
        await names(f"host-{number}.example")
    await names("host-1024.example")
    assert len(look_up.names) == 1025
    await names("host-0.example")
    assert len(look_up.names) == 1026


# -- several addresses ----------------------------------------------------------------------------


@contextmanager
def deaf(address: str, port: int) -> Iterator[None]:
    """Its backlog is full, so that nobody's connection comes about."""
    with socket.socket() as listening:
        listening.bind((address, port))
        listening.listen(0)
        with socket.create_connection((address, port)):
            yield


async def test_who_is_not_at_one_address_may_be_at_the_next(
    new_sender: NewSender, receiver: Receiver
) -> None:
    sender = new_sender(look_up=Asked(ELSEWHERE, "127.0.0.1"))
    assert await sender.send(delivery(receiver.url("ok", host="hooks.example"))) is None


async def test_an_address_that_says_nothing_holds_up_the_others_for_a_moment(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """Far less than the time each of them has."""
    patient = replace(HERE, connect_timeout=1000, total_timeout=10)
    sender = new_sender(patient, look_up=Asked(ELSEWHERE, "127.0.0.1"))
    with deaf(ELSEWHERE, receiver.port):
        assert await sender.send(delivery(receiver.url("ok", host="hooks.example"))) is None


async def test_all_that_say_nothing_are_given_up(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(replace(HERE, connect_timeout=0.1), look_up=Asked(ELSEWHERE, "127.0.0.4"))
    with deaf(ELSEWHERE, receiver.port), deaf("127.0.0.4", receiver.port):
        refused = await sender.send(delivery(receiver.url("ok", host="hooks.example")))
    assert refused is not None
    assert (refused.error, refused.again) == ("no connection within 0.1 s", True)
