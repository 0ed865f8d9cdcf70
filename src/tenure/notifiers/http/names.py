"""Where receivers are: the addresses behind a name, judged and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from msgspec import Struct

from tenure.notifiers.http.failures import NotResolved
from tenure.notifiers.http.guard import Judge, OffLimits, judged
from tenure.notifiers.http.lookup import LookUp

KEPT = 10.0
"""Seconds: a receiver that moves is found again soon."""
_AT_MOST = 1024


class _Known(Struct):
    addresses: deque[str]
    until: float


class Names:
    """Hands out addresses that passed the judge, and no others. One that is an address already
    is handed out as it is: every socket is judged anyway."""

    def __init__(self, look_up: LookUp, judge: Judge) -> None:
        self._look_up = look_up
        self._judge = judge
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def __call__(self, host: str) -> list[str]:
        """In the order to try them, which begins with another one each time."""
        if _is_address(host):
            return [host]
        now = asyncio.get_running_loop().time()
        known = self._known.get(host)
        if known is None or known.until <= now:
            known = _Known(deque(await self._ask(host)), now + KEPT)
            self._keep(host, known)
        addresses = list(known.addresses)
        known.addresses.rotate(-1)
        return addresses

    async def _ask(self, host: str) -> list[str]:
        try:
            return judged(host, await self._look_up(host), self._judge)
        except OffLimits:
            raise
        except OSError as error:
            raise NotResolved(error.strerror or "no answer") from error

    def _keep(self, host: str, known: _Known) -> None:
        self._known[host] = known
        self._known.move_to_end(host)
        if len(self._known) > _AT_MOST:
            self._known.popitem(last=False)


def _is_address(host: str) -> bool:
    """By its looks: of those that only look like one, targets were cleared before."""
    return ":" in host or host.replace(".", "").isdigit()
