"""``HttpStore``: a gateway's store, from afar."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from tenure.client.leases import LeasesOverHttp
from tenure.client.line import TIMEOUT, Line
from tenure.client.presence import PresenceOverHttp
from tenure.client.records import RecordsOverHttp
from tenure.client.runs import RunsOverHttp


class HttpStore(RunsOverHttp, LeasesOverHttp, RecordsOverHttp, PresenceOverHttp):
    """Opened when it is first used. ``token`` or ``TENURE_TOKEN``; what it may not do, the gateway
    refuses with ``NotPermitted``.

    Callbacks are sent, abandoned runs marked and old ones forgotten at the gateway's side.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        super().__init__(Line(url, token, timeout=timeout))
        self._opened_with = (url, token, timeout)

    @property
    def attended_by(self) -> str:
        return f"the gateway at {self._line.address}"

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Self]:
        """With connections of its own: they belong to the loop that opens them."""
        url, token, timeout = self._opened_with
        async with type(self)(url, token, timeout=timeout) as apart:
            yield apart

    async def close(self) -> None:
        """May be called twice."""
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exit_details: object) -> None:
        await self.close()
