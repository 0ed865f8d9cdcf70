"""No connection to an address that was not judged.

In these tests this machine's 127.0.0.2 plays a public address, and whoever listens on 127.0.0.1 is
what must not be reached.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tenure.notifiers.http import HttpSettings
from tenure.notifiers.http.addresses import off_limits
from tenure.notifiers.http.guard import OffLimits, anywhere, guarded_sockets, judged
from tenure.workflow.spec import CallbackSpec
from tests.notifiers.deliveries import HERE, NewSender, delivery
from tests.notifiers.receiver import Receiver

GUARDED = HttpSettings()
PUBLIC = "127.0.0.2"


def all_but_one(address: str) -> str | None:
    return None if address == PUBLIC else off_limits(address)


def says(*answers: list[str]) -> tuple[Callable[[str], Awaitable[list[str]]], list[str]]:
    """Resolves to one answer after the other, the last one for ever; and what it was asked."""
    asked: list[str] = []

    async def look_up(host: str) -> list[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return look_up, asked


@pytest.fixture
async def outside(receiver: Receiver) -> AsyncIterator[Receiver]:
    """Listens where callbacks may go, on the very port of the one inside."""
    async with Receiver(host=PUBLIC, port=receiver.port) as outside:
        yield outside


def resolve(answers: list[str], judge: Callable[[str], str | None]) -> list[str]:
    return judged("hooks.example", answers, judge)


# -- names ----------------------------------------------------------------------------------------


def test_addresses_that_are_off_limits_are_dropped() -> None:
    mixed = ["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1111", "::ffff:127.0.0.1"]
    assert resolve(mixed, off_limits) == ["8.8.8.8", "2606:4700::1111"]


def test_a_trusting_network_drops_none() -> None:
    assert resolve(["10.0.0.1", "::1"], anywhere) == ["10.0.0.1", "::1"]


def test_nothing_left_names_the_rule_and_the_setting() -> None:
    with pytest.raises(OffLimits) as refused:
        resolve(["10.0.0.1", "::1"], off_limits)
    assert str(refused.value) == (
        "hooks.example leads to a private address, where callbacks may not go; if it is meant, set "
        "callback_allow_private"
    )


def test_a_name_without_addresses_is_an_error_of_the_resolver() -> None:
    with pytest.raises(socket.gaierror):
        resolve([], off_limits)


@pytest.mark.parametrize("answer", ["localhost", "0x7f.1", "127.1", "2130706433", ""])
def test_what_is_no_address_is_never_handed_on(answer: str) -> None:
    """The system would read these as 127.0.0.1 when it connects."""
    with pytest.raises(OffLimits):
        resolve([answer], off_limits)


# -- sockets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.1", "fe80::1%lo"])
def test_no_socket_for_such_an_address(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with pytest.raises(OffLimits):
        guarded_sockets(off_limits)((family, socket.SOCK_STREAM, 0, "", (address, 80)))


def test_a_socket_for_any_other() -> None:
    info = (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("2606:4700::1111", 80, 0, 0))
    with guarded_sockets(off_limits)(info) as opened:
        assert (opened.family, opened.type) == (socket.AF_INET6, socket.SOCK_STREAM)


# -- whole attempts -------------------------------------------------------------------------------


async def test_a_name_reaches_what_is_public(new_sender: NewSender, outside: Receiver) -> None:
    look_up, asked = says([PUBLIC])
    sender = new_sender(GUARDED, look_up=look_up, judge=all_but_one)
    assert await sender.send(delivery(outside.url("ok", host="hooks.example"))) is None
    [got] = await outside.got(1)
    assert got.headers["host"] == f"hooks.example:{outside.port}"
    assert asked == ["hooks.example"]


async def test_of_several_addresses_only_public_ones_are_tried(
    new_sender: NewSender, receiver: Receiver, outside: Receiver
) -> None:
    look_up, _ = says(["127.0.0.1", "::1", PUBLIC, "10.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, judge=all_but_one)
    assert await sender.send(delivery(outside.url("ok", host="hooks.example"))) is None
    await outside.got(1)
    assert receiver.connections == 0


async def test_a_name_that_changes_its_mind_between_check_and_connect(
    new_sender: NewSender, receiver: Receiver, outside: Receiver
) -> None:
    """DNS rebinding: public when first asked, ours ever after. There is no second question."""
    look_up, asked = says([PUBLIC], ["127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, judge=all_but_one)
    assert await sender.send(delivery(outside.url("ok", host="rebind.example"))) is None
    assert (asked, receiver.connections) == (["rebind.example"], 0)


async def test_a_name_that_changes_its_mind_between_attempts(
    new_sender: NewSender, receiver: Receiver, outside: Receiver
) -> None:
    look_up, _ = says([PUBLIC], ["127.0.0.1"])
    for expected in (None, False):
        sender = new_sender(GUARDED, look_up=look_up, judge=all_but_one)
        refused = await sender.send(delivery(outside.url("ok", host="rebind.example")))
        assert (refused and refused.again) is expected
    assert receiver.connections == 0


async def test_a_resolver_that_lies_is_caught_at_the_socket(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """The second line of defence, alone: a judge that was asked about another address."""
    verdicts = iter([None])

    def fooled_once(address: str) -> str | None:
        return next(verdicts, off_limits(address))

    look_up, _ = says(["127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, judge=fooled_once)
    refused = await sender.send(delivery(receiver.url("ok", host="hooks.example")))
    assert refused is not None
    assert (refused.again, receiver.connections) == (False, 0)


ODD = {
    "127.0.0.1": "a loopback address",
    "127.0.0.53": "a loopback address",
    "0.0.0.0": "an unspecified address",
    "[::1]": "a loopback address",
    "[::]": "an unspecified address",
    "[::ffff:127.0.0.1]": "a loopback address",
    "[0:0:0:0:0:ffff:7f00:1]": "a loopback address",
    "[::127.0.0.1]": "a reserved address",
    "[64:ff9b::7f00:1]": "a loopback address",
    "[2002:7f00:1::]": "a loopback address",
    "[fe80::1%25lo]": "a link-local address",
    "[fe80::1%lo]": "a link-local address",
    "１２７.0.0.1": "a loopback address",
    "127。0。0。1": "a loopback address",
    "①②⑦.⓪.⓪.①": "a loopback address",
}


@pytest.mark.parametrize(("host", "place"), ODD.items())
async def test_literal_addresses_meet_the_same_judge(
    host: str, place: str, new_sender: NewSender, receiver: Receiver
) -> None:
    look_up, asked = says([])
    sender = new_sender(GUARDED, look_up=look_up)
    refused = await sender.send(delivery(f"http://{host}:{receiver.port}/ok"))
    assert refused is not None
    assert (refused.again, asked, receiver.connections) == (False, [], 0)
    assert place in refused.error
    assert "callback_allow_private" in refused.error


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "127.0.0.01", "0", "1.2.3"]
)
async def test_numbers_the_system_would_read_as_an_address_are_refused(
    host: str, new_sender: NewSender, receiver: Receiver
) -> None:
    sender = new_sender(GUARDED, look_up=says([])[0])
    refused = await sender.send(delivery(f"http://{host}:{receiver.port}/ok"))
    assert refused is not None
    assert (refused.again, receiver.connections) == (False, 0)


@pytest.mark.parametrize("host", ["0x7f.1", "0x7f000001", "localhost", "localhost.", "a.localhost"])
async def test_names_the_resolver_reads_as_this_machine_are_refused(
    host: str, new_sender: NewSender, receiver: Receiver
) -> None:
    look_up, asked = says(["::1", "127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up)
    refused = await sender.send(delivery(f"http://{host}:{receiver.port}/ok"))
    assert refused is not None
    assert (refused.again, receiver.connections) == (False, 0)
    assert asked == [host]
    assert refused.error.startswith(f"{host} leads to a loopback address")


async def test_where_a_name_leads_inside_is_not_told(new_sender: NewSender) -> None:
    """Or a submitter could read our name server."""
    sender = new_sender(GUARDED, look_up=says(["10.20.30.40"])[0])
    refused = await sender.send(delivery("http://db.internal/"))
    assert refused is not None
    assert "10.20.30.40" not in refused.error


async def test_an_address_as_long_as_a_letter_is_cut_in_the_error(new_sender: NewSender) -> None:
    refused = await new_sender(GUARDED).send(delivery(f"http://[fe80::1%{'x' * 5000}\u202e]/"))
    assert refused is not None
    assert not refused.again
    assert len(refused.error) < 300
    assert refused.error.isprintable()


async def test_our_own_targets_may_be_inside_and_nobody_elses(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """What the settings of this process name. Whoever names the same URL with other headers, or
    another secret, could have us say what we would not say."""
    url, secret = receiver.url("ok", host="hooks.internal"), "TENURE_HOOK_SHOP"
    ours = CallbackSpec(url=url, secret_env=secret, headers={"X-Team": "ops"})
    sender = new_sender(GUARDED, look_up=says(["127.0.0.1"])[0], own=[ours])
    ways: list[dict[str, Any]] = [
        {},
        {"secret_env": secret},
        {"headers": {"X-Team": "ops"}},
        {"secret_env": secret, "headers": {"X-Team": "other"}},
        {"secret_env": secret, "headers": {"X-Team": "ops", "X-More": "1"}},
    ]

    async def others_are_refused() -> None:
        for way in ways:
            refused = await sender.send(delivery(url, **way))
            assert refused is not None
            assert not refused.again

    await others_are_refused()
    mine = delivery(url, secret_env=secret, headers={"X-Team": "ops"}, events=("run", "step"))
    assert await sender.send(mine) is None
    await others_are_refused()  # though there is a connection now
    other_path = receiver.url("204", host="hooks.internal")
    refused = await sender.send(delivery(other_path, secret_env=secret, headers={"X-Team": "ops"}))
    assert refused is not None
    assert len(receiver.received) == 1


async def test_a_trusting_network_lets_all_pass(new_sender: NewSender, receiver: Receiver) -> None:
    sender = new_sender(HERE, look_up=says(["127.0.0.1"])[0])
    assert await sender.send(delivery(receiver.url("ok"))) is None
    assert await sender.send(delivery(receiver.url("ok", host="hooks.internal"))) is None
    assert len(receiver.received) == 2
