"""The line to a gateway, bounded in time, in connections and in what it takes in."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from io import BytesIO
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from yarl import URL

from tenure._version import __version__
from tenure.client.address import address_of
from tenure.client.refusals import error_of, problem_in
from tenure.model.errors import (
    StoreIncompatible,
    StoreUnavailable,
    TenureError,
    UnknownStore,
)

TOKEN = "TENURE_TOKEN"  # noqa: S105  (the variable's name)
TIMEOUT = 30.0
_CONNECT = 10.0
_IDLE = 30.0
"""Seconds that an unused connection is kept: less than a gateway keeps it, for a request that
crosses its end is lost."""
_MOST_BYTES = 512 << 20
"""Of an answer. Ten claimed runs of thousands of hosts are large."""
_PIECE = 1 << 16
_LARGE = 1 << 18
_CONNECTIONS = 32
_SILENCE = 45.0
"""Seconds without a sign of life from a stream; a gateway gives one every 15."""

T = TypeVar("T")
Query = Iterable[tuple[str, str]]


class Lane(Enum):
    """Connections of one kind, and how many at once: zero is any number."""

    COMMON = ("common", _CONNECTIONS)
    APART = ("apart", _CONNECTIONS)
    """For what must not stand behind the output of a thousand hosts."""
    STREAMS = ("streams", 0)
    """Each of them stays."""


class Reply(NamedTuple):
    status: int
    data: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def as_a(self, kind: type[T]) -> T:
        """``StoreIncompatible``."""
        if self.status == 204:
            return kind()
        try:
            return msgspec.json.decode(self.data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreIncompatible(
                f"what the gateway answers this version of Tenure cannot read: {error}"
            ) from error


class Line:
    """``token`` or what ``TENURE_TOKEN`` holds; it is sent in a header, and shown nowhere.

    Belongs to whichever event loop uses it first, until it is closed.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self.address = address_of(url)
        self._token = _checked(token if token is not None else os.environ.get(TOKEN, ""))
        self._timeout = timeout
        self._sessions: dict[Lane, ClientSession] = {}

    async def close(self) -> None:
        """May be called twice; the next request opens it again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Query = (),
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
        wait: float = 0.0,
        apart: bool = False,
        malformed: type[TenureError] = StoreIncompatible,
    ) -> T:
        """The answer as ``kind``, or the error that the gateway met. ``malformed`` is what a
        request is that it does not understand. ``StoreUnavailable`` if nobody knows."""
        reply = await self.send(
            method, path, query=query, body=body, headers=headers, wait=wait, apart=apart
        )
        if not reply.is_good:
            raise error_of(problem_in(reply.status, reply.data), self.address, malformed)
        return reply.as_a(kind)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
        wait: float = 0.0,
        apart: bool = False,
    ) -> Reply:
        """``wait``: seconds the answer may be held back on purpose. ``apart``: see ``Lane``."""
        url = URL(f"{self.address}{path}{_written(query)}", encoded=True)
        timeout = ClientTimeout(total=self._timeout + wait, sock_connect=_CONNECT)
        try:
            async with self._opened(Lane.APART if apart else Lane.COMMON).request(
                method,
                url,
                data=_in_pieces(body),
                headers={**self._headers(body), **headers},
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                return Reply(answer.status, await self._taken_in(answer))
        except (ClientError, TimeoutError, OSError) as error:
            raise self._silent(error) from error

    @asynccontextmanager
    async def listening(
        self, path: str, query: Query = (), place: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """Server-sent events behind ``place``, as they come; ``None`` if no more will. Errors are
        those of ``ask``, whenever the line breaks."""
        headers = {**self._headers(None), "accept": "text/event-stream"}
        if place is not None:
            headers["last-event-id"] = place
        try:
            async with self._opened(Lane.STREAMS).get(
                URL(f"{self.address}{path}{_written(query)}", encoded=True),
                headers=headers,
                timeout=ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE),
                allow_redirects=False,
            ) as answer:
                if answer.status not in (200, 204):
                    problem = problem_in(answer.status, await self._taken_in(answer))
                    raise error_of(problem, self.address)
                yield answer.content.iter_any() if answer.status == 200 else None
        except (ClientError, TimeoutError, OSError) as error:
            raise self._silent(error) from error

    def _silent(self, error: Exception) -> StoreUnavailable:
        why = str(error) or type(error).__name__
        return StoreUnavailable(f"{self.address} did not answer: {why}")

    def _opened(self, lane: Lane) -> ClientSession:
        session = self._sessions.get(lane)
        if session is None:
            _, most = lane.value
            session = self._sessions[lane] = ClientSession(
                connector=TCPConnector(limit=most, keepalive_timeout=_IDLE),
                cookie_jar=DummyCookieJar(),
                headers={"user-agent": f"tenure/{__version__}", "accept": "application/json"},
                proxy=_way_out(self.address),
            )
        return session

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {} if body is None else {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    async def _taken_in(self, answer: ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in answer.content.iter_chunked(_PIECE):
            size += len(piece)
            if size > _MOST_BYTES:
                raise StoreIncompatible(
                    f"{self.address} answers with more than {_MOST_BYTES} bytes: nobody reads that"
                )
            pieces.append(piece)
        return b"".join(pieces)


def _way_out(address: str) -> str | None:
    """Behind a firewall a proxy may be the only one. Asked once: aiohttp would look for it, and for
    passwords in the user's home, at each request, in a thread."""
    parts = urlsplit(address)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def _in_pieces(body: bytes | None) -> bytes | BytesIO | None:
    """A large body is written piece by piece: the event loop has other things to do."""
    return BytesIO(body) if body is not None and len(body) > _LARGE else body


def _checked(token: str) -> str:
    """``UnknownStore`` for what cannot be sent in a header; it is not shown."""
    token = token.strip()
    if token.isascii() and (token.isprintable() or not token):
        return token
    raise UnknownStore(f"what {TOKEN} holds, or was given as a token, is none")


def part(text: str) -> str:
    """One part of a path, whatever is in it."""
    return quote(text, safe="")


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _written(query: Query) -> str:
    pairs = list(query)
    return f"?{urlencode(pairs)}" if pairs else ""
