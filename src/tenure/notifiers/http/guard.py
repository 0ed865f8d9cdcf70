"""No connection to an address that was not judged.

Names are judged as they are resolved: addresses that are off limits are dropped, and connections
go to what is left without asking again, so that a name cannot change its mind in between. Every
socket is judged once more as it is opened: this is what a URL with a literal address meets, which
is never resolved.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

from tenure.model.errors import TenureError
from tenure.notifiers.http.wording import quoted

Judge = Callable[[str], str | None]
"""The kind of place an address is if callbacks may not go there, else ``None``."""


class OffLimits(TenureError, OSError):
    """The target leads to a place callbacks may not go to."""

    def __init__(self, host: str, place: str) -> None:
        super().__init__(
            f"{quoted(host)} leads to {place}, where callbacks may not go; if it is meant, set "
            "callback_allow_private"
        )


def anywhere(address: str) -> str | None:
    """The judge of a network that trusts its submitters."""
    return None


def judged(host: str, addresses: Iterable[str], judge: Judge) -> list[str]:
    """Those of them that pass. ``OffLimits`` if none does, ``gaierror`` if there is none."""
    allowed: list[str] = []
    places: list[str] = []
    for address in addresses:
        place = judge(address)
        if place is None:
            allowed.append(address)
        else:
            places.append(place)
    if places and not allowed:
        raise OffLimits(host, places[0])
    if not allowed:
        raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
    return allowed


def guarded_sockets(judge: Judge) -> Callable[[Any], socket.socket]:
    """Opens sockets for addresses that pass the judge, and for no others."""

    def open_socket(address_info: Any) -> socket.socket:
        family, kind, protocol, _, (address, *_) = address_info
        place = judge(address)
        if place is not None:
            raise OffLimits(address, place)
        return socket.socket(family, kind, protocol)

    return open_socket
