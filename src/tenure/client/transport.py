"""HTTP to a gateway, bounded in time, connections and size; server-sent events."""

from __future__ import annotations

import os
import random
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from io import BytesIO
from ipaddress import ip_address
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

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
from tenure.model.retry_policy import RetryPolicy
from tenure.wire.addresses import shown_address


def address_of(url: str) -> str:
    """``url`` without a trailing slash. ``UnknownStore``, whose message never has a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message may repeat a part of a password
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
    said = f"{shown_address(url)} is not the URL of a gateway"
    return UnknownStore(f"{said}; an example: https://tenure.example.com")


TOKEN = "TENURE_TOKEN"  # noqa: S105  (the variable's name)
TIMEOUT = 30.0
_CONNECT_TIMEOUT_S = 10.0
_IDLE_TIMEOUT_S = 30.0
"""Seconds that an unused connection is kept: less than the gateway keeps it, since a request sent
while it closes would be lost."""
_MAX_ANSWER_BYTES = 512 << 20
"""Of an answer. Ten claimed runs of thousands of hosts are large."""
_PIECE_BYTES = 1 << 16
_MIN_PIECEWISE_BYTES = 1 << 18
_MAX_CONNECTIONS = 32
_SILENCE_TIMEOUT_S = 45.0
"""Seconds without data from a stream; a gateway sends a heartbeat every 15."""

T = TypeVar("T")
Query = Iterable[tuple[str, str]]


class Lane(Enum):
    """Pools of connections, with their limits: zero is unlimited."""

    COMMON = ("common", _MAX_CONNECTIONS)
    APART = ("apart", _MAX_CONNECTIONS)
    """For requests that must not wait behind the output of a thousand hosts."""
    STREAMS = ("streams", 0)
    """One connection for each stream."""


class Reply(NamedTuple):
    status: int
    data: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def as_a(self, kind: type[T]) -> T:
        """Decode as ``kind``. ``StoreIncompatible``."""
        if self.status == 204:
            return kind()
        try:
            return msgspec.json.decode(self.data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreIncompatible(
                f"what the gateway answers this version of Tenure cannot read: {error}"
            ) from error


class _Sessions:
    """Those of one event loop. The generator is what the loop knows of them: it closes every open
    asynchronous generator before it ends."""

    def __init__(self) -> None:
        self.of: dict[Lane, ClientSession] = {}
        self._until_closed = self._kept()

    async def open(self) -> None:
        await anext(self._until_closed)

    async def close(self) -> None:
        await self._until_closed.aclose()

    async def _kept(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            sessions, self.of = self.of, {}
            for session in sessions.values():
                await session.close()


class HttpTransport:
    """``token`` defaults to ``TENURE_TOKEN``; it is sent in a header, and shown nowhere.

    It may be used from several event loops, one after the other or in threads of their own. Each
    has its own connections, which are closed by ``close`` there, or when the loop ends.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self.address = address_of(url)
        self._token = _checked(token if token is not None else os.environ.get(TOKEN, ""))
        self._timeout = timeout
        self._sessions: WeakKeyDictionary[AbstractEventLoop, _Sessions] = WeakKeyDictionary()

    async def close(self) -> None:
        """Of this event loop. May be called twice; the next request opens it again."""
        sessions = self._sessions.pop(get_running_loop(), None)
        if sessions is not None:
            await sessions.close()

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
        """The answer as ``kind``, or the gateway's error. ``malformed`` is the error for a request
        that the gateway calls malformed. ``StoreUnavailable`` if the outcome is unknown."""
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
        timeout = ClientTimeout(total=self._timeout + wait, sock_connect=_CONNECT_TIMEOUT_S)
        try:
            session = await self._opened(Lane.APART if apart else Lane.COMMON)
            async with session.request(
                method,
                url,
                data=_in_pieces(body),
                headers={**self._headers(body), **headers},
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                return Reply(answer.status, await self._read_body(answer))
        except (ClientError, TimeoutError, OSError) as error:
            raise self._unavailable(error) from error

    @asynccontextmanager
    async def listening(
        self, path: str, query: Query = (), place: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """Server-sent events after ``place``; ``None`` if no more will come. Raises the errors of
        ``ask``, also when the connection breaks later."""
        headers = {**self._headers(None), "accept": "text/event-stream"}
        if place is not None:
            headers["last-event-id"] = place
        try:
            session = await self._opened(Lane.STREAMS)
            async with session.get(
                URL(f"{self.address}{path}{_written(query)}", encoded=True),
                headers=headers,
                timeout=ClientTimeout(
                    total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=_SILENCE_TIMEOUT_S
                ),
                allow_redirects=False,
            ) as answer:
                if answer.status not in (200, 204):
                    problem = problem_in(answer.status, await self._read_body(answer))
                    raise error_of(problem, self.address)
                yield answer.content.iter_any() if answer.status == 200 else None
        except (ClientError, TimeoutError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        why = str(error) or type(error).__name__
        return StoreUnavailable(f"{self.address} did not answer: {why}")

    async def _opened(self, lane: Lane) -> ClientSession:
        sessions = self._sessions.get(get_running_loop())
        if sessions is None:
            sessions = self._sessions[get_running_loop()] = _Sessions()
            await sessions.open()
        session = sessions.of.get(lane)
        if session is None:
            _, most = lane.value
            session = sessions.of[lane] = ClientSession(
                connector=TCPConnector(limit=most, keepalive_timeout=_IDLE_TIMEOUT_S),
                cookie_jar=DummyCookieJar(),
                headers={"user-agent": f"tenure/{__version__}", "accept": "application/json"},
                proxy=_proxy_for(self.address),
            )
        return session

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {} if body is None else {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    async def _read_body(self, answer: ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in answer.content.iter_chunked(_PIECE_BYTES):
            size += len(piece)
            if size > _MAX_ANSWER_BYTES:
                raise StoreIncompatible(
                    f"{self.address} answers with more than {_MAX_ANSWER_BYTES} bytes, the limit"
                )
            pieces.append(piece)
        return b"".join(pieces)


def _proxy_for(address: str) -> str | None:
    """The proxy to use, if any. Looked up once: aiohttp would look for it, and for passwords in the
    user's home, at each request, in a thread."""
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
    """A large body is sent in pieces, so that writing it does not block the event loop."""
    return BytesIO(body) if body is not None and len(body) > _MIN_PIECEWISE_BYTES else body


def _checked(token: str) -> str:
    """``UnknownStore`` for a token that cannot be sent in a header; it is not shown."""
    token = token.strip()
    if token.isascii() and (token.isprintable() or not token):
        return token
    raise UnknownStore(f"the value of {TOKEN}, or the given token, is not a token")


def part(text: str) -> str:
    """``text`` escaped as one part of a path."""
    return quote(text, safe="")


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _written(query: Query) -> str:
    pairs = list(query)
    return f"?{urlencode(pairs)}" if pairs else ""


# Idempotency keys.


_MAX_KEY_CHARS = 255


def key_header(key: str | None) -> dict[str, str]:
    """``InvalidOptions`` for a key that cannot be sent in a header."""
    if key is None:
        return {}
    if not (0 < len(key) <= _MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise InvalidOptions([f"key: must be 1 to {_MAX_KEY_CHARS} printable characters of ASCII"])
    return {"idempotency-key": key}


# Server-sent events.


_MAX_MESSAGE_BYTES = 64 << 20
"""Of one message: far more than any event or piece of output has."""


class Message(NamedTuple):
    """``kind`` is ``message`` for ordinary data; ``place`` is its position, if given."""

    kind: str
    place: str | None
    data: bytes


async def messages_in(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Message]:
    """Messages, however the pieces are cut. An incomplete last one is dropped."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        if len(rest) > _MAX_MESSAGE_BYTES:
            raise StoreIncompatible("the answer is not a stream of server-sent events")
        for block in whole:
            message = _read(block)
            if message.data:
                yield message


def _read(block: bytes) -> Message:
    """A comment is a heartbeat, and has no data."""
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


# Following: a broken stream is continued where it broke, at this or another gateway of the store,
# without duplicates.


_RETRY = RetryPolicy(attempts=10, delay=0.2, backoff=2.0, max_delay=10.0, jitter=0.5)
"""Gives up after most of a minute without an answer."""
_PLAIN, _END, _PROBLEM = "message", "end", "problem"
"""Any other message says that the connection is about to be closed."""


class Stream(NamedTuple, Generic[T]):
    """What is followed, and how its messages are decoded."""

    path: str
    query: Query
    kind: type[T]


async def followed(line: HttpTransport, stream: Stream[T]) -> AsyncGenerator[T]:
    """All messages, to the end if there is one. ``StoreUnavailable`` if the first connection fails,
    or none succeeds for most of a minute later; other errors of the gateway are raised as they
    are."""
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
        wait = _RETRY.wait_after(failures, luck=random.random())  # noqa: S311
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
