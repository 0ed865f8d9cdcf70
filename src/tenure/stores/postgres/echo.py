"""Whether hints that are told on this database are heard by whoever listens through this URL.

Through a pooler that hands each transaction to another connection they are not: the one that
listens is somebody else's by the time they come.
"""

from __future__ import annotations

from contextlib import aclosing
from uuid import uuid4

from tenure.stores.postgres.announcing import announcing
from tenure.stores.postgres.channels import LISTEN, channel_of
from tenure.stores.postgres.connections import Connections, Purpose
from tenure.stores.postgres.failures import DRIVER_ERRORS, translation
from tenure.stores.postgres.statements import SQL

_PATIENCE = 2.0
"""Seconds. A hint takes milliseconds."""


async def hears_itself(connections: Connections) -> bool | None:
    """``None``: nobody wants to hear any."""
    if not connections.address.wakeups:
        return None
    topic = f"echo:{uuid4().hex}"
    try:
        async with connections.own_line() as line:
            await line.execute(SQL[LISTEN[channel_of(topic)]], prepare=False)
            async with connections.session(Purpose.READING) as session:
                await session.together(*announcing([topic], after_full_queue=True))
            async with aclosing(line.notifies(timeout=_PATIENCE)) as heard:
                async for hint in heard:
                    if topic in hint.payload:
                        return True
    except DRIVER_ERRORS as error:
        raise translation(connections.address, error) from error
    return False
