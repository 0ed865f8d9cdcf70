"""Signals to processes of another user, sent by that user: we may not do it ourselves."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from tenure.model.errors import TransportError
from tenure.ports.execution import Command
from tenure.transports import group
from tenure.transports.become import signalling
from tenure.transports.child import Child
from tenure.transports.spawn import image_of, spawn
from tenure.transports.streams import UntilItFails


async def signal_as(user: str | None, leader: int, number: int) -> None:
    """To a whole process group, if it needs another user at all. Of sudo and that user's processes
    we may reach sudo only, which would leave them behind. A failure is not raised: then they are
    still running, and said to be."""
    if user is None or os.geteuid() == 0:
        return
    with suppress(TransportError, OSError):
        await _run(signalling(user, leader, number))


async def _run(argv: tuple[str, ...]) -> None:
    process, pipes = spawn(image_of(Command(argv=argv)), feed=False)
    helper = Child(asyncio.get_running_loop(), process, pipes, b"", grace=0)
    try:
        helper.begin()
        await helper.streams.hand_over(UntilItFails(None))
    finally:
        if helper.ended:
            helper.reap()
        else:
            group.send(helper.pid, signal.SIGKILL)
            helper.abandon()
        helper.close()
