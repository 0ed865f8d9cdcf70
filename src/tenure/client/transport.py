"""The line to a gateway, bounded in time, in connections and in what it takes in."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from io import BytesIO
from ipaddress import ip_address
from typing import Any, Generic, NamedTuple, TypeVar
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
from tenure.aio import pause
from tenure.client.errors import error_of, problem_in
from tenure.model.errors import (
    InvalidOptions,
    StoreIncompatible,
    StoreUnavailable,
    TenureError,
    UnknownStore,
)
from tenure.model.retry import RetryPolicy
from tenure.wire.addresses import shown_address

# Where a gateway is.


def address_of(url: str) -> str:
    """Without the slash at its end. ``UnknownStore``, which never shows a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose message may repeat a part of a password
        raise _no_gateway(url) from None
    if parts.username is not None or parts.password is not None:
        raise UnknownStore(
            "a gateway's URL holds no user or password: it would end up in logs and lists of "
            "processes. Put the token into the environment variable TENURE_TOKEN"
        )
    odd = parts.scheme not in ("http", "https") or port == 0 or parts.query or parts.fragment
    if odd or not parts.hostname:
        raise _no_gateway(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _no_gateway(url: str) -> UnknownStore:
    said = f"{shown_address(url)} is no gateway's URL"
    return UnknownStore(f"{said}; an example: https://tenure.example.com")


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


class HttpTransport:
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
    if is_here(parts.hostname or ""):  # no proxy leads back, and none shall see the token
        return None
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def is_here(host: str) -> bool:
    """On loopback, which no other machine can be reached by."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


# A request's own name, by which a repetition is known.


_MAX_KEY_CHARS = 255


def key_header(key: str | None) -> dict[str, str]:
    """``InvalidOptions`` for what cannot be sent in a header."""
    if key is None:
        return {}
    if not (0 < len(key) <= _MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise InvalidOptions([f"key: must be 1 to {_MAX_KEY_CHARS} printable characters of ASCII"])
    return {"idempotency-key": key}


# Server-sent events, taken apart as they come.


_MAX_MESSAGE_BYTES = 64 << 20
"""Bytes of one message: far more than any event or piece of output has."""


class Message(NamedTuple):
    """``kind`` is ``message`` for what one came for; ``place`` is where it stands, if told."""

    kind: str
    place: str | None
    data: bytes


async def messages_in(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Message]:
    """However they are cut. One that is not whole is left out: its line was lost."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        if len(rest) > _MAX_MESSAGE_BYTES:
            raise StoreIncompatible("what comes as a stream of events is none")
        for block in whole:
            message = _read(block)
            if message.data:
                yield message


def _read(block: bytes) -> Message:
    """A comment is a sign of life, and has no data."""
    fields: dict[bytes, bytes] = {}
    for line in block.splitlines():
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    place = fields.get(b"id")
    return Message(
        kind=fields.get(b"event", b"message").decode("utf-8", "replace"),
        place=None if place is None else place.decode("utf-8", "replace"),
        data=fields.get(b"data", b""),
    )


# Following what happens: a line that breaks is taken up again where it broke, here or at another
# gateway of the same store, and nothing comes twice.


_AGAIN = RetryPolicy(attempts=10, delay=0.2, backoff=2.0, max_delay=10.0, jitter=0.5)
"""Most of a minute without an answer."""
_PLAIN, _END, _PROBLEM = "message", "end", "problem"
"""What else there is says that the line is about to be cut."""


class Stream(NamedTuple, Generic[T]):
    """What is followed, and what each of its messages is."""

    path: str
    query: Query
    kind: type[T]


async def followed(line: HttpTransport, stream: Stream[T]) -> AsyncGenerator[T]:
    """To its end, if it has one. ``StoreUnavailable`` if nobody answers at first, or for most of a
    minute later on; whatever else the gateway says is raised as it is."""
    place: str | None = None
    reached, failures = False, 0
    while True:
        lost = StoreUnavailable(f"{line.address} ended the stream, and could not be reached again")
        try:
            async with line.listening(stream.path, stream.query, place) as pieces:
                reached, failures = True, 0
                if pieces is None:
                    return
                async with aclosing(messages_in(pieces)) as messages:
                    async for message in messages:
                        if message.kind == _END:
                            return
                        if message.kind == _PROBLEM:
                            raise error_of(problem_in(500, message.data), line.address)
                        if message.kind == _PLAIN:
                            place = message.place or place
                            yield _value(message, stream.kind)
        except StoreUnavailable as error:
            if not reached:
                raise
            lost = error
        failures += 1
        wait = _AGAIN.wait_after(failures, luck=random.random())  # noqa: S311
        if wait is None:
            raise lost
        await pause(wait)


def _value(message: Message, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(message.data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreIncompatible(
            f"what the gateway tells this version of Tenure cannot read: {error}"
        ) from error
