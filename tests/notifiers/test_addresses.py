"""Where callbacks may go, address by address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.notifiers.http.addresses import off_limits

KINDS = {
    "a cloud metadata address": [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a83f:8110::1",
    ],
    "an unspecified address": ["0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0"],
    "a loopback address": [
        "127.0.0.1",
        "127.255.255.255",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "0:0:0:0:0:ffff:7f00:0001",
        "64:ff9b::127.0.0.1",
        "2002:7f00:1::",
        "2002:7f00:1:abcd::1",
    ],
    "a link-local address": [
        "169.254.0.1",
        "169.254.255.255",
        "fe80::1",
        "fe80::1%eth0",
        "febf:ffff::1",
        "::ffff:169.254.1.1",
    ],
    "a private address": [
        "10.0.0.0",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.255.255",
        "fec0::1",
        "::ffff:10.0.0.1",
        "64:ff9b::10.1.2.3",
        "2002:c0a8:101::1",
    ],
    "a unique-local address": ["fc00::1", "fd12:3456:789a::1", "fdff:ffff::1"],
    "a carrier-grade NAT address": ["100.64.0.1", "100.127.255.255", "::ffff:100.64.0.1"],
    "a multicast address": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "a documentation address": [
        "192.0.2.1",
        "198.51.100.7",
        "203.0.113.255",
        "2001:db8::1",
        "3fff::1",
    ],
    "a benchmarking address": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "a reserved address": [
        "192.0.0.1",
        "192.88.99.1",
        "240.0.0.1",
        "255.255.255.255",
        "::127.0.0.1",  # IPv4-compatible: a form nobody uses any more, whatever is inside
        "::8.8.8.8",
        "::ffff:0:127.0.0.1",
        "::2",
        "64:ff9b:1::8.8.8.8",  # NAT64 of a local network
        "100::1",
        "2001::1",  # Teredo
        "2001:10::1",
        "4000::1",
        "5f00::1",
        "e000::1",
    ],
    "something that is not an IP address": [
        "",
        "localhost",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "[::1]",
        "127.0.0.1:80",
        "１２７.0.0.1",
        " 8.8.8.8",
    ],
}


@pytest.mark.parametrize(
    ("address", "kind"), [(address, kind) for kind, listed in KINDS.items() for address in listed]
)
def test_no_business_there(address: str, kind: str) -> None:
    assert off_limits(address) == kind


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "3ffe::1",
        "2a00::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_open_to_all(address: str) -> None:
    assert off_limits(address) is None


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
