"""Processes as tasks of a supervisor. The package's head tells what that is good for."""

from __future__ import annotations

import asyncio
import os
import time
from asyncio import AbstractEventLoop
from contextlib import suppress
from logging import getLogger
from math import inf

from tenure.model.errors import NotStarted
from tenure.ports.execution import Command
from tenure.transports.children import ChildStarter
from tenure.transports.plumbing import lay_pipes
from tenure.transports.spawn import Image, image_of, too_long, why_not
from tenure.transports.starting import Started, Starter
from tenure.transports.supervisor import frames
from tenure.transports.supervisor.frames import Spawn
from tenure.transports.supervisor.link import Disconnected, Link, Unsupervised
from tenure.transports.supervisor.ward import Ward, patience

_log = getLogger(__name__)

_RUN = "TENURE_RUN_ID"
_TO_DIE = 2.0
"""Seconds in which a KILL has done its work; they are part of the margin."""
_ALWAYS = (0, 0.0)
_TRIES = 3


class SupervisedStarter:
    """Starts its supervisor with the first task, and a new one when that was lost. Where the
    system does not allow one, tasks are children of this program, and a warning says so."""

    def __init__(self, *, task_groups: bool = True) -> None:
        self._task_groups = task_groups
        self._links: dict[AbstractEventLoop, Link] = {}
        self._opening: dict[AbstractEventLoop, asyncio.Task[Link]] = {}
        self._windows: dict[str, tuple[int, float]] = {}
        self._instead: Starter | None = None

    async def start(self, command: Command) -> Started:
        for _ in range(_TRIES):
            if self._instead is not None:
                return await self._instead.start(command)
            try:
                return self._entrust(await self._link(), command)
            except Disconnected:
                continue
            except Unsupervised as error:
                self._do_without(error)
        raise NotStarted(
            f"{command.argv[0]} was not started: its supervisor was killed {_TRIES} times before "
            "it could; look for who kills processes here"
        )

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        opening = self._opening.get(here)
        if opening is not None:
            await asyncio.wait([opening])
        while self._links:
            loop, link = self._links.popitem()
            if loop is here:
                await link.close()
            else:
                link.drop()

    def _do_without(self, why: Unsupervised) -> None:
        if self._instead is None:
            self._instead = ChildStarter()
            _log.warning(
                "local tasks are not supervised here (%s): what leaves its process group, or "
                "outlives this program when that is killed, is not ended",
                why,
            )

    # Trust

    def trust(self, run_id: str, until: float, margin: float) -> None:
        if until == inf:
            window = _ALWAYS
        else:
            # In this order: whatever passes between the two readings shortens the trust.
            boot, now = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.monotonic()
            window = (max(1, boot + int((until - now) * 1e9)), max(0.0, margin - _TO_DIE))
        self._windows[run_id] = window
        if self._links:
            body = frames.trust(_key(run_id), *window)
            for link in list(self._links.values()):
                link.send(frames.TRUST, body=body)

    def forget(self, run_id: str) -> None:
        self._windows.pop(run_id, None)

    # Starting

    def _entrust(self, link: Link, command: Command) -> Ward:
        image = image_of(command)
        if image.cwd is None or not image.cwd.startswith(b"/"):
            image = image._replace(cwd=_here(image.cwd))
        order = self._order(command, image)
        text = order.encode()
        if len(text) > frames.MOST_ASKED:
            raise NotStarted(too_long(image))
        try:
            pipes, given = lay_pipes(feed=bool(command.stdin))
        except OSError as error:
            raise NotStarted(why_not(error, image)) from error
        ward = Ward(asyncio.get_running_loop(), link, command, image, pipes)
        ward.begin(text, given)
        window = self._windows.get(command.env.get(_RUN, ""), _ALWAYS)
        if window != (order.until, order.late_grace):
            # Another thread prolonged the trust before the supervisor knew of this task.
            link.send(frames.TRUST, body=frames.trust(order.run, *window))
        return ward

    def _order(self, command: Command, image: Image) -> Spawn:
        run_id = command.env.get(_RUN, "")
        until, late_grace = self._windows.get(run_id, _ALWAYS)
        return Spawn(
            argv=image.argv,
            env=image.env,
            cwd=image.cwd or b"/",
            feed=bool(command.stdin),
            grace=patience(command),
            run=_key(run_id),
            until=until,
            late_grace=late_grace,
        )

    # The supervisor

    async def _link(self) -> Link:
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is not None and link.serves(loop):
            return link
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._open(loop))
            opening.add_done_callback(_heard)
        return await asyncio.shield(opening)

    async def _open(self, loop: AbstractEventLoop) -> Link:
        try:
            for other, link in list(self._links.items()):
                if other.is_closed() or not link.serves(other):
                    del self._links[other]
                    link.drop()
            link = self._links[loop] = await Link.open(task_groups=self._task_groups)
        finally:
            del self._opening[loop]
        return link


def _key(run_id: str) -> bytes:
    return run_id.encode("utf-8", "surrogatepass")


def _here(folder: bytes | None) -> bytes:
    """The supervisor stands elsewhere: what is relative here must be absolute there."""
    with suppress(OSError):
        return os.path.join(os.getcwdb(), folder or b"")
    return folder or b"/"


def _heard(opening: asyncio.Task[Link]) -> None:
    """Whoever waited may have been cancelled; then nobody else looks at what it says."""
    if not opening.cancelled():
        opening.exception()
