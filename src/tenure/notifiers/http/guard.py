"""Address checks: callbacks connect to allowed addresses only.

Addresses are checked when a name is resolved, and connections use the checked ones without
resolving again (DNS rebinding). They are checked again when a socket is opened, for URLs with a
literal address.

IPv4 is allowed except for the table. IPv6 is forbidden except for global unicast. An IPv4 address
embedded in an IPv6 one is checked as IPv4.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tenure.model.errors import TenureError
from tenure.notifiers.http.answer import quoted

AddressPolicy = Callable[[str], str | None]
"""The kind of a forbidden address, else ``None``."""
LookUp = Callable[[str], Awaitable[list[str]]]
"""The addresses of a host name. ``OSError`` if there are none."""

MAX_LOOKUPS = 32
"""Concurrently; each has a thread."""

_OFF_LIMITS = {
    "a cloud metadata address": (
        "169.254.169.254",  # AWS, Google, Azure and most others
        "169.254.170.2",  # AWS containers
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's platform, in a range that looks public
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",
        "fd20:ce::254",
    ),
    "an unspecified address": ("0.0.0.0/8", "::"),
    "a loopback address": ("127.0.0.0/8", "::1"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fec0::/10"),
    "a unique-local address": ("fc00::/7",),
    "a carrier-grade NAT address": ("100.64.0.0/10",),
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    "a documentation address": (
        *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
        *("2001:db8::/32", "3fff::/20"),
    ),
    "a benchmarking address": ("198.18.0.0/15", "2001:2::/48"),
    "a reserved address": (
        "192.0.0.0/24",  # protocol assignments
        "192.88.99.0/24",  # former 6to4 relays
        "240.0.0.0/4",  # with the broadcast address
        "2001::/23",  # protocol assignments: Teredo, ORCHID …
    ),
}
_RULES = tuple(
    (rule, tuple(ip_network(network) for network in networks))
    for rule, networks in _OFF_LIMITS.items()
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_EMBEDDINGS = (
    # IPv6 networks with embedded IPv4 addresses, and the number of bits after these.
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)


class OffLimits(TenureError, OSError):
    """The target's address is forbidden."""

    def __init__(self, host: str, place: str) -> None:
        super().__init__(
            f"{quoted(host)} leads to {place}, where callbacks may not go; if it is meant, set "
            "callback_allow_private"
        )


def allow_all(address: str) -> str | None:
    """The policy for trusted submitters."""
    return None


def off_limits(address: str) -> str | None:
    """The default policy."""
    try:
        ip = _unembedded(ip_address(address))
    except ValueError:
        return "something that is not an IP address"
    for rule, networks in _RULES:
        if any(ip in network for network in networks):
            return rule
    return "a reserved address" if ip.version == 6 and ip not in _GLOBAL_UNICAST else None


def _unembedded(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    for network, bits_behind in _EMBEDDINGS:
        if ip in network:
            return IPv4Address(int(ip) >> bits_behind & 0xFFFFFFFF)
    return ip


def allowed(host: str, addresses: Iterable[str], policy: AddressPolicy) -> list[str]:
    """The allowed addresses. ``OffLimits`` if none is allowed, ``gaierror`` if there is none."""
    judged = [(address, policy(address)) for address in addresses]
    passed = [address for address, place in judged if place is None]
    if passed:
        return passed
    for _, place in judged:
        if place is not None:
            raise OffLimits(host, place)
    raise socket.gaierror(socket.EAI_NONAME, "the name has no address")


def guarded_sockets(policy: AddressPolicy) -> Callable[[Any], socket.socket]:
    """A socket factory for allowed addresses."""

    def open_socket(address_info: Any) -> socket.socket:
        family, kind, protocol, _, (address, *_) = address_info
        place = policy(address)
        if place is not None:
            raise OffLimits(address, place)
        return socket.socket(family, kind, protocol)

    return open_socket


class GuardedResolver(AbstractResolver):
    """Resolves to allowed addresses."""

    def __init__(self, look_up: LookUp, policy: AddressPolicy) -> None:
        self._look_up = look_up
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in allowed(host, await self._look_up(host), self._policy)
        ]

    async def close(self) -> None:
        """Does nothing."""


class SystemLookUp:
    """The system's resolver, in daemon threads: a look-up may take half a minute and cannot be
    cancelled, and must block neither the event loop's pool nor the end of the process."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def __call__(self, host: str) -> list[str]:
        async with self._free:
            answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
            threading.Thread(target=_ask, args=(host, answer), daemon=True).start()
            return await answer


def _ask(host: str, answer: asyncio.Future[list[str]]) -> None:
    found: list[str] | OSError
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = [str(address[0]) for *_, address in infos]
    except OSError as error:
        found = error

    def settle() -> None:
        if answer.done():  # cancelled meanwhile
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    with suppress(RuntimeError):  # the loop is closed
        answer.get_loop().call_soon_threadsafe(settle)
