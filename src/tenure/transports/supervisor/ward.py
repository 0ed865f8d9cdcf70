"""A task of the supervisor, as the runner sees it."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import AbstractEventLoop

from tenure.model.errors import NotStarted, StillRunning, TransportError, Untrusted
from tenure.ports.execution import Command, Output
from tenure.transports.ending import whatever_happens
from tenure.transports.foreign import signal_as
from tenure.transports.plumbing import Ends
from tenure.transports.spawn import Image, why_not
from tenure.transports.streams import Streams, UntilItFails
from tenure.transports.supervisor import frames
from tenure.transports.supervisor.demise import AFTER_KILL
from tenure.transports.supervisor.frames import Malformed
from tenure.transports.supervisor.link import Disconnected, Link
from tenure.transports.supervisor.marks import value_in

_TO_ANSWER = AFTER_KILL + 5.0
"""Seconds after a KILL in which the supervisor must have said how it went."""


def patience(command: Command) -> float:
    """Its grace; none, if that is no number of seconds anybody could wait."""
    return max(0.0, command.grace)


class Ward:
    def __init__(
        self, loop: AbstractEventLoop, link: Link, command: Command, image: Image, pipes: Ends
    ) -> None:
        self.mark = value_in(image.env)
        self._loop = loop
        self._link = link
        self._number = 0
        self._image = image
        self._become = command.become
        self._grace = patience(command)
        self._streams = Streams(loop, pipes, command.stdin, self._grace, self._held_open)
        self._pid: int | None = None
        self._status: int | None = None
        self._refusal: TransportError | None = None
        self._why_lost: str | None = None
        self._untrusted = False
        self._dying = False
        self._only_held = False
        self._left: list[int] | None = None
        self._news: asyncio.Future[None] | None = None

    def begin(self, order: bytes, given: Ends) -> None:
        """``Disconnected``: it was not begun, and nothing stays open."""
        try:
            self._number = self._link.spawn(self, order, given)
        except Disconnected:
            self._streams.close()
            raise
        try:
            self._streams.begin()
        except OSError as error:
            self.kill()
            self.close()
            raise NotStarted(
                f"{self._name} was ended at once, nobody can read it: {error}"
            ) from error

    # What the runner does

    async def see_through(self, output: Output) -> int:
        await self._streams.hand_over(output)
        if self._dying or self._why_lost is not None:
            await self._until_settled()
        if self._refusal is not None:
            raise self._refusal
        if self._untrusted:
            raise Untrusted(
                f"{self._name} was ended: the lease of its run was not renewed in time, so another "
                "owner may have the run"
            )
        if self._status is None:
            raise TransportError(
                f"{self._name} was ended with its supervisor ({self._why_lost}); how it would have "
                "ended nobody knows"
            )
        return os.waitstatus_to_exitcode(self._status)

    async def end(self, output: Output | None) -> None:
        if self._is_settled:
            return
        self._ask_to_end(self._grace)
        try:
            async with asyncio.timeout(self._grace):
                await self._signal_as_its_user(signal.SIGTERM)
                await self._streams.hand_over(UntilItFails(output))
                await self._until_settled()
        except (TimeoutError, asyncio.CancelledError):
            await whatever_happens(self._end_now())

    def kill(self) -> None:
        self._ask_to_end(0.0)

    def close(self) -> None:
        self._streams.close()
        self._link.release(self._number)

    async def _end_now(self) -> None:
        self._ask_to_end(0.0)
        try:
            async with asyncio.timeout(_TO_ANSWER):
                await self._signal_as_its_user(signal.SIGKILL)
                await self._until_settled()
        except TimeoutError:
            self._link.lose("it does not answer")
            await self._until_settled()

    def _ask_to_end(self, grace: float) -> None:
        self._dying = True
        self._link.send(frames.END, self._number, frames.end(grace))

    async def _signal_as_its_user(self, number: int) -> None:
        if self._become is None:
            return
        while self._pid is None and not self._is_settled:
            await self._next_news()
        if self._pid is not None:
            await signal_as(self._become, self._pid, number)

    def _held_open(self) -> None:
        if self._dying:
            return  # whoever holds them is being ended already
        self._dying = self._only_held = True
        self._link.send(frames.END_GROUP, self._number)

    @property
    def _is_settled(self) -> bool:
        return self._left is not None or self._refusal is not None

    async def _until_settled(self) -> None:
        while not self._is_settled:
            await self._next_news()
        if self._left:
            raise StillRunning(
                f"{self._name}, or what it started, was told to end; this could not be killed, or "
                f"may be another task's: ps -p {','.join(map(str, self._left))}"
            )

    async def _next_news(self) -> None:
        self._news = self._loop.create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    @property
    def _name(self) -> str:
        program = os.fsdecode(self._image.argv[0])
        return program if self._pid is None else f"{program} (process {self._pid})"

    # What it hears from its supervisor

    def hear(self, kind: int, body: bytes) -> None:
        if kind == frames.EXITED:
            self._status = frames.read_number(body)
            self._streams.note_end()
        elif kind == frames.LEADER:
            self._pid = frames.read_number(body)
            self._tell()
        elif kind == frames.REFUSED:
            self._refusal = self._refused(*frames.read_refusal(body))
            self._finish()
        elif kind == frames.UNTRUSTED:
            self._untrusted = self._dying = True
        elif kind == frames.GONE:
            if self._only_held:
                self._streams.warn_if_held(self._pid, killed=frames.read_number(body) > 0)
            self.settle([])
        elif kind == frames.LEFT:
            self.settle(frames.read_numbers(body))
        else:
            raise Malformed(f"a frame of kind {kind}")

    def lose(self, why: str) -> None:
        self._why_lost = why

    def settle(self, left: list[int]) -> None:
        self._left = left
        self._finish()

    def _finish(self) -> None:
        self._streams.end_with_what_is_there()
        self._tell()

    def _refused(self, number: int, what: int) -> TransportError:
        if what == frames.TO_TRUST:
            return Untrusted(
                f"{os.fsdecode(self._image.argv[0])} was not started: the lease of its run was not "
                "renewed in time, so another owner may have the run"
            )
        name = self._image.cwd if what == frames.TO_ENTER else None
        error = OSError(number, os.strerror(number), name)
        return NotStarted(why_not(error, self._image))
