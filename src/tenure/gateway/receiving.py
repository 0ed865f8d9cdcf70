"""The body of a request: in bounded time and memory, whoever sends it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive

from tenure.gateway.parts import Limits
from tenure.gateway.problems import (
    BUSY,
    MALFORMED,
    TOO_LARGE,
    TOO_SLOW,
    UNSUPPORTED_MEDIA,
    Refusal,
)

CLOSE = {"connection": "close"}
"""After a body that was not read to its end the connection is of no more use."""

_DROP_BYTES = 16 << 20
_DROP_SECONDS = 2.0


class ClientGone(Exception):
    """Nobody is there to be answered."""


class Intake:
    """All bodies that are being received at this moment."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def body(self, receive: Receive, headers: dict[str, str], most: int | None) -> bytes:
        """``Refusal``; ``ClientGone``."""
        most = most or self._limits.body_bytes
        try:
            _check_length(headers.get("content-length"), most)
            return await self._received(receive, most)
        except Refusal as refusal:
            if refusal.problem.status == TOO_LARGE.status:
                await _drop_some(receive, min(_DROP_SECONDS, self._limits.body_seconds))
            raise

    async def _received(self, receive: Receive, most: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > most:
                        raise _too_large(most)
                    if self._held > self._limits.all_bodies:
                        raise Refusal(BUSY, "too many large requests at once", CLOSE)
                    chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError as error:
            seconds = self._limits.body_seconds
            said = f"the body did not arrive within {seconds:g} seconds"
            raise Refusal(TOO_SLOW, said, CLOSE) from error
        finally:
            self._held -= size
        return b"".join(chunks)


async def _drop_some(receive: Receive, seconds: float) -> None:
    """Who is still sending would not hear our answer before the connection is closed."""
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while dropped < _DROP_BYTES:
                message = await receive()
                dropped += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _check_length(given: str | None, most: int) -> None:
    if given is not None and given.isdecimal() and (len(given) > 18 or int(given) > most):
        raise _too_large(most)


def _too_large(most: int) -> Refusal:
    return Refusal(TOO_LARGE, f"the body may have {most} bytes at most", CLOSE)


def check_is_json(headers: dict[str, str]) -> None:
    """A page of another site could send a form without asking, but not this."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(UNSUPPORTED_MEDIA, "send JSON, and say content-type: application/json")


def decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise Refusal(MALFORMED, f"the body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(MALFORMED, f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Refusal(MALFORMED, "the body is nested too deeply") from error
