"""One callback sent for trying, with everything that went over the wire."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from msgspec import Struct

from tenure.bootstrap import http_sender
from tenure.model.events import RecordedEvent
from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import RunStatus
from tenure.ports.sender import NotTaken
from tenure.system import SystemClock, new_run_id, new_update_id
from tenure.wire.callback import CallbackPayload, payload
from tenure.workflow.spec import CallbackSpec


class Probe(Struct, kw_only=True):
    """Filled as the attempt goes on; what did not happen stays unset."""

    delivery: Delivery
    headers: dict[str, str] = {}
    """As they went out. Empty: there was no connection to send them over."""
    status: int | None = None
    reason: str = ""
    seconds: float = 0.0
    refusal: NotTaken | None = None

    def sent(self, headers: dict[str, str]) -> None:
        self.headers = headers

    def answered(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason

    @property
    def payload(self) -> CallbackPayload:
        sample = self.delivery
        return payload(sample.event, sample.workflow_name, sample.run_status)


async def probe(
    target: CallbackTarget, seconds: float, allow_private: bool, own: Sequence[CallbackSpec]
) -> Probe:
    """By the sender all callbacks go through, guard and signature included."""
    seen = Probe(delivery=_sample(target))
    sender = http_sender(seconds, allow_private, own, witness=seen)
    start = perf_counter()
    try:
        seen.refusal = await sender.send(seen.delivery)
        seen.seconds = perf_counter() - start
    finally:
        await sender.close()
    return seen


def _sample(target: CallbackTarget) -> Delivery:
    now = SystemClock().now()
    run_id = f"test-{new_run_id()}"
    return Delivery(
        id=new_update_id(),
        run_id=run_id,
        workflow_name="tenure-callbacks-test",
        target=target,
        event=RecordedEvent(
            type="run.success",
            status=RunStatus.SUCCESS,
            run_id=run_id,
            version=1,
            seq=0,
            at=now,
            fence=0,
        ),
        run_status=RunStatus.SUCCESS,
        due_at=now,
    )
