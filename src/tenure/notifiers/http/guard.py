"""No connection to an address that was not judged.

Names are judged as they are resolved: addresses that are off limits are dropped, and the client
connects to what is left without asking again, so that a name cannot change its mind in between.
Every socket is judged once more as it is opened: this is what a URL with a literal address meets,
which is never resolved.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from tenure.model.errors import TenureError
from tenure.notifiers.http.lookup import LookUp
from tenure.notifiers.http.wording import quoted

Judge = Callable[[str], str | None]
"""The kind of place an address is if callbacks may not go there, else ``None``."""


class OffLimits(TenureError, OSError):
    """The target leads to a place callbacks may not go to. An ``OSError``, as the client expects of
    whoever resolves names and opens sockets for it."""

    def __init__(self, host: str, place: str) -> None:
        super().__init__(
            f"{quoted(host)} leads to {place}, where callbacks may not go; if it is meant, set "
            "callback_allow_private"
        )


def anywhere(address: str) -> str | None:
    """The judge of a network that trusts its submitters."""
    return None


class GuardedResolver(AbstractResolver):
    """Hands out addresses that passed the judge, and no others."""

    def __init__(self, look_up: LookUp, judge: Judge) -> None:
        self._look_up = look_up
        self._judge = judge

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        allowed: list[ResolveResult] = []
        places: list[str] = []
        for address in await self._look_up(host):
            place = self._judge(address)
            if place is None:
                allowed.append(_result(host, address, port))
            else:
                places.append(place)
        if places and not allowed:
            raise OffLimits(host, places[0])
        if not allowed:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        return allowed

    async def close(self) -> None:
        """Nothing is held."""


def guarded_sockets(judge: Judge) -> Callable[[Any], socket.socket]:
    """Opens sockets for addresses that pass the judge, and for no others."""

    def open_socket(address_info: Any) -> socket.socket:
        family, kind, protocol, _, (address, *_) = address_info
        place = judge(address)
        if place is not None:
            raise OffLimits(address, place)
        return socket.socket(family, kind, protocol)

    return open_socket


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
