"""Sending an answer: security headers, compression, and what ``Accept`` prefers."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.types import Send

from tenure.aio import pause
from tenure.gateway.problems import BUSY, Refusal
from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.wire.answers import full
from tenure.wire.leases import GivenLease, GivenLeases

JSON = "application/json"
_MIN_COMPRESSED_BYTES = 1024
_MIN_THREAD_BYTES = 64 << 10
_GZIP_LEVEL = 4
_GZIP = 31
"""Of ``zlib``: with the header that makes it gzip."""
SEND_TIMEOUT_S = 20.0
"""For a client to take a piece of 64 kB."""
_COMPRESSIBLE = ("application/json", "application/problem+json", "text/")

STEADY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_DEFAULT_POLICY = "default-src 'none'; frame-ancestors 'none'"


async def send_answer(
    send: Send,
    status: int,
    body: bytes,
    media_type: str,
    headers: Mapping[str, str],
    *,
    accept_encoding: str = "",
    head: bool = False,
    packed: bytes | None = None,
    send_timeout: float = SEND_TIMEOUT_S,
) -> None:
    said = {
        "cache-control": "no-store",
        "content-security-policy": _DEFAULT_POLICY,
        **headers,
    }
    if len(body) >= _MIN_COMPRESSED_BYTES and media_type.startswith(_COMPRESSIBLE):
        said["vary"] = "accept-encoding"
        if takes_gzip(accept_encoding):
            body = packed or await compressed(body)
            said["content-encoding"] = "gzip"
    if status not in (204, 304):
        said["content-type"] = media_type
        said["content-length"] = str(len(body))
    await _begin(send, status, said)
    await _send_pieces(send, iter(()) if head else _cut(body), send_timeout)


async def send_large(
    send: Send,
    status: int,
    value: Any,
    headers: Mapping[str, str],
    *,
    accept_encoding: str = "",
    head: bool = False,
    send_timeout: float = SEND_TIMEOUT_S,
) -> None:
    """A value of which ``is_large`` holds, written as it is sent: it is never whole in memory as
    text, and others are answered between two pieces of it."""
    said = {
        "cache-control": "no-store",
        "content-security-policy": _DEFAULT_POLICY,
        **headers,
        "vary": "accept-encoding",
        "content-type": JSON,
    }
    pieces = _written(value)
    if takes_gzip(accept_encoding):
        said["content-encoding"] = "gzip"
        pieces = _zipped(pieces)
    await _begin(send, status, said)
    await _send_pieces(send, iter(()) if head else _joined(pieces), send_timeout)


async def _begin(send: Send, status: int, said: Mapping[str, str]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in said.items()]
    await send({"type": "http.response.start", "status": status, "headers": [*raw, *STEADY]})


async def _send_pieces(send: Send, pieces: Iterator[bytes], timeout_s: float) -> None:
    """A client that does not take one in time is hung up on: the server closes the connection of an
    answer that has no end."""
    last = next(pieces, b"")
    try:
        for piece in pieces:
            async with asyncio.timeout(timeout_s):
                await send({"type": "http.response.body", "body": last, "more_body": True})
            await pause(0.0)
            last = piece
        async with asyncio.timeout(timeout_s):
            await send({"type": "http.response.body", "body": last})
    except TimeoutError:
        return


def _cut(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]


# Records of many hosts.


CHUNK_BYTES = 64 << 10
_LARGE_HOSTS = 500
_HOSTS_AT_ONCE = 100
"""Written in one go: with the tails of their output about a megabyte at most."""
_shown_run, _shown_step, _shown_host = full(RunSnapshot), full(StepState), full(HostState)
_shown_lease = full(GivenLease)


def hosts_in(run: RunSnapshot) -> int:
    """Loop items count as hosts do."""
    return sum(len(host.items) or 1 for step in run.steps for host in step.hosts.values())


LARGE_BYTES = 4 << 20
"""Of any other answer, a definition with its files, say: it counts among the large ones."""


def is_large(value: Any) -> bool:
    if isinstance(value, RunSnapshot):
        return hosts_in(value) > _LARGE_HOSTS
    if isinstance(value, GivenLease):
        return hosts_in(value.snapshot) > _LARGE_HOSTS
    if isinstance(value, GivenLeases):
        return sum(hosts_in(lease.snapshot) for lease in value.leases) > _LARGE_HOSTS
    return False


def _written(value: Any) -> Iterator[bytes]:
    """The JSON of it, piece by piece."""
    if isinstance(value, RunSnapshot):
        head, foot = _json(replace(value, steps=()), _shown_run).rsplit(b"[]", 1)
        yield head
        yield from _steps(value)
        yield foot
    elif isinstance(value, GivenLease):
        bare = replace(value, snapshot=replace(value.snapshot, steps=()))
        head, foot = _json(bare, _shown_lease).rsplit(_NO_STEPS, 1)
        yield head + _NO_STEPS[:-2]
        yield from _steps(value.snapshot)
        yield foot
    else:
        yield b'{"leases":['
        for number, lease in enumerate(value.leases):
            yield b"," if number else b""
            yield from _written(lease)
        yield b"]}"


_NO_STEPS = b'"steps":[]'


def _steps(run: RunSnapshot) -> Iterator[bytes]:
    yield b"["
    for number, step in enumerate(run.steps):
        head, foot = _json(replace(step, hosts={}), _shown_step).rsplit(b"{}", 1)
        yield (b"," if number else b"") + head + b"{"
        hosts, comma = iter(step.hosts.items()), b""
        while some := dict(islice(hosts, _HOSTS_AT_ONCE)):
            shown = {
                name: msgspec.convert(host, _shown_host, from_attributes=True)
                for name, host in some.items()
            }
            yield comma + msgspec.json.encode(shown)[1:-1]
            comma = b","
        yield b"}" + foot
    yield b"]"


def _json(value: Any, shown: Any) -> bytes:
    return msgspec.json.encode(msgspec.convert(value, shown, from_attributes=True))


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Of one size."""
    rest = b""
    for piece in pieces:
        rest += piece
        while len(rest) >= CHUNK_BYTES:
            yield rest[:CHUNK_BYTES]
            rest = rest[CHUNK_BYTES:]
    yield rest


def _zipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    packing = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in _joined(pieces):
        yield packing.compress(piece)
    yield packing.flush()


class LargeAnswers:
    """Those that are on their way at this moment: so many in all, and so many of one token, for one
    that takes them slowly shall not stand in the way of others."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._of: Counter[str] = Counter()

    @contextmanager
    def one(self, token_id: str) -> Iterator[None]:
        """``Refusal``."""
        if self._of.total() >= self._most or self._of[token_id] >= self._most_of_one:
            raise Refusal(BUSY, "too many large answers at once")
        self._of[token_id] += 1
        try:
            yield
        finally:
            self._of[token_id] -= 1
            if not self._of[token_id]:
                del self._of[token_id]


def takes_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, quality = part.strip().partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def compressed(body: bytes) -> bytes:
    if len(body) < _MIN_THREAD_BYTES:
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)


_QUALITY_PARAMETER = re.compile(r"q=([01](?:\.\d{0,3})?)", re.ASCII)


def prefers(accept: str, media_type: str) -> bool:
    """Whether ``media_type`` is preferred to JSON, the default: it is named, not refused (``q=0``),
    and not rated lower (RFC 9110, 12.5.1)."""
    ranges = _ranges(accept)
    wanted = ranges.get(media_type, 0.0)
    return wanted > 0 and wanted >= _quality_of(JSON, ranges)


def _quality_of(media_type: str, ranges: Mapping[str, float]) -> float:
    """The quality of the most specific range that matches."""
    kind, _, _ = media_type.partition("/")
    said = (ranges[each] for each in (media_type, f"{kind}/*", "*/*") if each in ranges)
    return next(said, 0.0)


def _ranges(accept: str) -> dict[str, float]:
    """Ranges with their quality; unreadable ones are ignored."""
    found: dict[str, float] = {}
    for each in accept.lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        qualities = (_QUALITY_PARAMETER.fullmatch(parameter) for parameter in parameters)
        found[name] = next((float(given[1]) for given in qualities if given), 1.0)
    return found
