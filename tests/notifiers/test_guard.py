"""No connection to an address that was not judged.

In these tests this machine's 127.0.0.2 plays a public address, and what listens on 127.0.0.1 must
not be reached.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.notifiers.http import HttpSettings
from tenure.notifiers.http.guard import (
    MAX_LOOKUPS,
    OffLimits,
    SystemLookUp,
    allow_all,
    allowed,
    off_limits,
)
from tenure.workflow.spec import CallbackSpec
from tests.notifiers.deliveries import NewSender, delivery, no
from tests.notifiers.receiver import PATIENCE, Receiver

GUARDED = HttpSettings()
PUBLIC = "127.0.0.2"

KINDS = {
    "a cloud metadata address": """
        169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254
        fd20:ce::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a83f:8110::1""",
    "an unspecified address": "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0",
    "a loopback address": """
        127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1 0:0:0:0:0:ffff:7f00:0001
        64:ff9b::127.0.0.1 2002:7f00:1:: 2002:7f00:1:abcd::1""",
    "a link-local address": """
        169.254.0.1 169.254.255.255 fe80::1 fe80::1%eth0 febf:ffff::1 ::ffff:169.254.1.1""",
    "a private address": """
        10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255 fec0::1
        ::ffff:10.0.0.1 64:ff9b::10.1.2.3 2002:c0a8:101::1""",
    "a unique-local address": "fc00::1 fd12:3456:789a::1 fdff:ffff::1",
    "a carrier-grade NAT address": "100.64.0.1 100.127.255.255 ::ffff:100.64.0.1",
    "a multicast address": "224.0.0.1 239.255.255.255 ff02::1 ff0e::1",
    "a documentation address": "192.0.2.1 198.51.100.7 203.0.113.255 2001:db8::1 3fff::1",
    "a benchmarking address": "198.18.0.1 198.19.255.255 2001:2::1",
    # IPv4-compatible addresses, whatever is inside; NAT64 of a local network; Teredo.
    "a reserved address": """
        192.0.0.1 192.88.99.1 240.0.0.1 255.255.255.255 ::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1
        ::2 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:10::1 4000::1 5f00::1 e000::1""",
    "something that is not an IP address": """
        localhost 0x7f.1 0x7f000001 2130706433 127.1 0177.0.0.1 127.0.0.1. [::1] 127.0.0.1:80
        １２７.0.0.1""",
}
OPEN = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255
    192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888
    2606:4700:4700::1111 3ffe::1 2a00::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1"""


@pytest.mark.parametrize(("kind", "addresses"), KINDS.items())
def test_where_callbacks_have_no_business(kind: str, addresses: str) -> None:
    listed = addresses.split()
    assert {address: off_limits(address) for address in listed} == dict.fromkeys(listed, kind)


def test_what_is_open_to_all() -> None:
    assert not [address for address in OPEN.split() if off_limits(address) is not None]


@given(st.ip_addresses(v=4))
def test_no_disguise_changes_the_verdict(address: IPv4Address) -> None:
    number = int(address)
    disguises = [
        IPv6Address(0xFFFF << 32 | number),
        IPv6Address(0x64FF9B << 96 | number),
        IPv6Address(0x2002 << 112 | number << 80 | 0xBEEF),
    ]
    assert {off_limits(str(disguise)) for disguise in disguises} == {off_limits(str(address))}


@given(st.ip_addresses())
def test_never_more_open_than_the_registry_of_special_addresses(
    address: IPv4Address | IPv6Address,
) -> None:
    """The library's table of what is not global, where it knows of one. A disguised address is
    global to it whatever is inside."""
    if off_limits(str(address)) is None and (address.is_private or address.is_multicast):
        assert isinstance(address, IPv6Address)
        assert address.ipv4_mapped is not None
        assert off_limits(str(address.ipv4_mapped)) is None


# -- names and sockets ----------------------------------------------------------------------------


def test_addresses_that_are_off_limits_are_dropped() -> None:
    mixed = ["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1111", "::ffff:127.0.0.1"]
    assert allowed("hooks.example", mixed, off_limits) == ["8.8.8.8", "2606:4700::1111"]
    assert allowed("hooks.example", mixed, allow_all) == mixed


def test_nothing_left_names_the_rule_and_the_setting() -> None:
    with pytest.raises(OffLimits) as refused:
        allowed("hooks.example", ["10.0.0.1", "::1"], off_limits)
    assert str(refused.value) == (
        "hooks.example leads to a private address, where callbacks may not go; if it is meant, set "
        "callback_allow_private"
    )


# -- the system's resolver ------------------------------------------------------------------------


async def test_the_system_is_asked() -> None:
    assert set(await SystemLookUp()("localhost")) <= {"127.0.0.1", "::1"}


async def test_names_that_are_not_answered_leave_the_loops_threads_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, asked = threading.Event(), threading.Semaphore(0)

    def hang(host: str, *how: Any, **more: Any) -> list[tuple[Any, ...]]:
        asked.release()
        answer.wait(PATIENCE)
        return [(0, 0, 0, "", (PUBLIC, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    look_up = SystemLookUp()
    names = [asyncio.create_task(look_up(f"{number}.example")) for number in range(MAX_LOOKUPS + 5)]
    for _ in range(MAX_LOOKUPS):
        assert await asyncio.to_thread(asked.acquire, timeout=PATIENCE)
    assert not asked.acquire(blocking=False), "threads are bounded"
    answer.set()
    assert await asyncio.gather(*names) == [[PUBLIC]] * len(names)


NAMES_NOT_ANSWERED = """
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
def test_a_name_that_is_not_answered_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NAMES_NOT_ANSWERED],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("no answer within 0.1 s\n", "")


# -- whole attempts -------------------------------------------------------------------------------


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


async def test_of_several_addresses_only_public_ones_are_tried(
    new_sender: NewSender, receiver: Receiver, outside: Receiver
) -> None:
    look_up, _ = says(["127.0.0.1", "::1", PUBLIC, "10.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, policy=all_but_one)
    assert await sender.send(delivery(outside.url("ok", host="hooks.example"))) is None
    [got] = await outside.got(1)
    assert got.headers["host"] == f"hooks.example:{outside.port}"
    assert receiver.connections == 0


async def test_a_name_that_changes_its_mind_between_check_and_connect(
    new_sender: NewSender, receiver: Receiver, outside: Receiver
) -> None:
    """DNS rebinding: public when first asked, ours ever after. There is no second question."""
    look_up, asked = says([PUBLIC], ["127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, policy=all_but_one)
    assert await sender.send(delivery(outside.url("ok", host="rebind.example"))) is None
    assert (asked, receiver.connections) == (["rebind.example"], 0)


async def test_a_resolver_that_lies_is_caught_at_the_socket(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """The second line of defence, alone: a judge that was asked about another address."""
    verdicts = iter([None])

    def fooled_once(address: str) -> str | None:
        return next(verdicts, off_limits(address))

    look_up, _ = says(["127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up, policy=fooled_once)
    no(await sender.send(delivery(receiver.url("ok", host="hooks.example"))), again=False)
    assert receiver.connections == 0


ODD = {
    "a loopback address": """
        127.0.0.1 127.0.0.53 [::1] [::ffff:127.0.0.1] [0:0:0:0:0:ffff:7f00:1] [64:ff9b::7f00:1]
        [2002:7f00:1::] １２７.0.0.1 127。0。0。1 ①②⑦.⓪.⓪.①""",
    "an unspecified address": "0.0.0.0 [::]",
    "a reserved address": "[::127.0.0.1]",
    "a link-local address": "[fe80::1%25lo] [fe80::1%lo]",
}


@pytest.mark.parametrize(
    ("host", "place"), [(host, place) for place, hosts in ODD.items() for host in hosts.split()]
)
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


@pytest.mark.parametrize("host", ["0x7f.1", "0x7f000001", "localhost", "localhost.", "a.localhost"])
async def test_names_the_resolver_reads_as_this_machine_are_refused(
    host: str, new_sender: NewSender, receiver: Receiver
) -> None:
    look_up, asked = says(["::1", "127.0.0.1"])
    sender = new_sender(GUARDED, look_up=look_up)
    error = no(await sender.send(delivery(f"http://{host}:{receiver.port}/ok")), again=False)
    assert error.startswith(f"{host} leads to a loopback address, where callbacks may not go")
    assert (asked, receiver.connections) == ([host], 0)


async def test_an_address_as_long_as_a_letter_is_cut_in_the_error(new_sender: NewSender) -> None:
    url = f"http://[fe80::1%{'x' * 5000}\u202e]/"
    no(await new_sender(GUARDED).send(delivery(url)), again=False)


async def test_our_own_targets_may_be_inside_and_no_others(
    new_sender: NewSender, receiver: Receiver
) -> None:
    """What the settings of this process name. A submitter that names the same URL with other
    headers, or another secret, could have us say what we would not say."""
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
            no(await sender.send(delivery(url, **way)), again=False)

    await others_are_refused()
    mine = delivery(url, secret_env=secret, headers={"X-Team": "ops"}, events=("run", "step"))
    assert await sender.send(mine) is None
    await others_are_refused()  # though there is a connection now
    other_path = receiver.url("204", host="hooks.internal")
    refused = await sender.send(delivery(other_path, secret_env=secret, headers={"X-Team": "ops"}))
    assert refused is not None
    assert len(receiver.received) == 1
