"""A stream on its way to one viewer, who may be slow, leave, or be sent away."""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

from starlette.types import Receive, Scope, Send

from tenure.gateway.answering import STEADY
from tenure.gateway.live.frames import HEARTBEAT, MEDIA_TYPE, OPENING, message
from tenure.gateway.live.patience import Patience
from tenure.gateway.live.watched import Part
from tenure.gateway.problems import problem_of
from tenure.wire.live import Interrupted

_HEADERS = (
    (b"content-type", MEDIA_TYPE.encode() + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    *STEADY,
)


async def send_stream(
    scope: Scope,
    receive: Receive,
    send: Send,
    parts: AsyncGenerator[Part[Any]],
    closing: asyncio.Event,
    dismissal: Callable[[], Coroutine[Any, Any, None]],
    patience: Patience,
) -> None:
    """``closing``: whoever looks is sent away, to go on elsewhere. ``dismissal`` ends with an error
    when this viewer may look no longer."""
    async with aclosing(parts):
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body"})
        else:
            dismissed = asyncio.create_task(dismissal())
            await _Sending(send, patience).all_of(parts, receive, closing, dismissed)


class _Sending:
    def __init__(self, send: Send, patience: Patience) -> None:
        self._send = send
        self._patience = patience
        self._place: object = None

    async def all_of(
        self,
        parts: AsyncGenerator[Part[Any]],
        receive: Receive,
        closing: asyncio.Event,
        dismissed: asyncio.Task[None],
    ) -> None:
        leaving = asyncio.create_task(_left(receive))
        closed = asyncio.create_task(closing.wait())
        try:
            last = await self._tell(parts, leaving, closed, dismissed)
            await parts.aclose()  # whatever the viewer still takes, nobody looks for it any more
            if last is None:
                await self._drop()
            elif not leaving.done():
                await self._send({"type": "http.response.body", "body": last})
        finally:
            await _end(leaving, closed, dismissed)

    async def _tell(
        self,
        parts: AsyncGenerator[Part[Any]],
        leaving: asyncio.Task[None],
        closed: asyncio.Task[Any],
        dismissed: asyncio.Task[None],
    ) -> bytes | None:
        """What is to be said at the end; ``None`` if the viewer takes nothing any more."""
        step = asyncio.create_task(_next(parts))
        part: Part[Any] | None = Part(None, OPENING)
        try:
            while part is not None and await self._is_taken(part):
                seconds = self._patience.heartbeat
                waited = (step, leaving, closed, dismissed)
                await asyncio.wait(waited, timeout=seconds, return_when=FIRST_COMPLETED)
                if leaving.done():
                    return b""
                if closed.done():
                    return self._farewell("closing")
                if dismissed.done():
                    dismissed.result()
                if step.done():
                    part = step.result()
                    step = asyncio.create_task(_next(parts))
                else:
                    part = Part(self._place, HEARTBEAT)
        except Exception as error:  # noqa: BLE001  (the viewer's to know)
            return message(problem_of(error), kind="problem")
        finally:
            await _end(step)
        return b"" if part is None else None

    async def _is_taken(self, part: Part[Any]) -> bool:
        """Whether the viewer took what was sent before, in time; ``part`` is then on its way."""
        try:
            async with asyncio.timeout(self._patience.stalled):
                await self._send(
                    {"type": "http.response.body", "body": part.data, "more_body": True}
                )
        except TimeoutError:
            return False
        self._place = part.place
        return True

    def _farewell(self, why: str) -> bytes:
        after = None if self._place is None else str(self._place)
        return message(Interrupted(after=after), kind=why)

    async def _drop(self) -> None:
        """Tell the viewer its place, if it reads on in time. Else the response ends unfinished, and
        the server closes the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.farewell):
                word = self._farewell("dropped")
                await self._send({"type": "http.response.body", "body": word})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(parts: AsyncGenerator[Part[Any]]) -> Part[Any] | None:
    return await anext(parts, None)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
