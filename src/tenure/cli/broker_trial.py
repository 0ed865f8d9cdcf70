"""Whether a broker does what submitters and workers ask of it: a ping may be all it answers."""

from __future__ import annotations

from contextlib import suppress

from tenure.model.errors import BrokerUnavailable
from tenure.ports.broker import Broker
from tenure.system import new_run_id

_LOOKS = 5
_WAIT = 1.0


async def try_broker(broker: Broker) -> None:
    """One hint, there and back, in a queue that nobody serves and that is gone afterwards.
    ``BrokerUnavailable``."""
    run_id = new_run_id()
    queue = f"doctor-{run_id.lower()}"
    try:
        await _there_and_back(broker, queue, run_id)
    except BaseException:
        with suppress(BrokerUnavailable):  # what went wrong first says more
            await broker.purge(queue)
        raise
    await broker.purge(queue)


async def _there_and_back(broker: Broker, queue: str, run_id: str) -> None:
    await broker.publish(queue, run_id)
    for _ in range(_LOOKS):
        hints = await broker.take([queue], limit=1, wait=_WAIT)
        if hints:
            await broker.acknowledge(hints)
            return
    raise BrokerUnavailable("a hint that it acknowledged does not arrive")
