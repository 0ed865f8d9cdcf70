"""Deliveries and senders to test with."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from tenure.model.outbox import Delivery
from tenure.model.snapshot import CallbackTarget, ErrorInfo
from tenure.model.status import RunStatus
from tenure.model.update import RecordedEvent
from tenure.notifiers.http import HttpSender, HttpSettings
from tenure.ports.callbacks import NotTaken
from tenure.workflow.callbacks import Signing
from tenure.workflow.spec import CallbackSpec
from tests.model.samples import AT

KEY = b"thirty-two bytes nobody guessed!"
SECRET = "whsec_" + b64encode(KEY).decode()
ENVIRON: Mapping[str, str] = {"TENURE_HOOK_SHOP": SECRET, "PATH": "/bin"}

NewSender = Callable[..., HttpSender]
"""The fixture ``new_sender``."""

HERE = HttpSettings(allow_private=True)
"""Fit to reach a receiver on this machine, and patient: the machine may be busy."""


class AnySigning(Signing):
    """Every secret signs for every receiver: their ports are not known before."""

    def fault_of(self, target: CallbackSpec | CallbackTarget) -> None:
        return None


def delivery(url: str | None, *, redelivery: bool = False, **target: Any) -> Delivery:
    event = RecordedEvent(
        type="step.failed",
        status="failed",
        step="migrate",
        error=ErrorInfo(kind="exit", message="exited with 3: größer", step="migrate", exit_code=3),
        run_id="run-00001",
        version=4,
        seq=1,
        at=AT,
        fence=1,
    )
    return Delivery(
        id="delivery-000007",
        run_id="run-00001",
        workflow_name="deploy",
        target=CallbackTarget(name="hook", url=url, **target),
        event=event,
        run_status=RunStatus.RUNNING,
        due_at=AT,
        redelivery=redelivery,
        token="relay",
    )


def no(refused: NotTaken | None, *, again: bool) -> str:
    """The error of an attempt that failed as it should."""
    assert refused is not None
    assert refused.again is again
    assert refused.error.isprintable()
    assert len(refused.error) < 300
    return refused.error
