"""A run as views are told of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tenure.model.snapshot import HostState, RunSnapshot, StepState
from tenure.model.update import RecordedEvent
from tenure.ports.execution import OutputChunk

START = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def planned(*steps: tuple[str, int]) -> RunSnapshot:
    return RunSnapshot(
        run_id="run-00001",
        workflow_name="deploy",
        steps=tuple(
            StepState(
                index=index,
                name=name,
                hosts={f"web{number}": HostState() for number in range(hosts)},
            )
            for index, (name, hosts) in enumerate(steps)
        ),
    )


def event(
    type: str,
    *,
    step: str | None = None,
    index: int | None = None,
    host: str | None = None,
    message: str | None = None,
    after: float = 0,
) -> RecordedEvent:
    kind, _, what = type.partition(".")
    return RecordedEvent(
        type=type,
        status=what if kind in ("run", "step", "host") else None,
        step=step,
        step_index=index,
        host=host,
        message=message,
        run_id="run-00001",
        version=1,
        seq=0,
        at=START + timedelta(seconds=after),
        fence=1,
    )


def chunk(
    data: bytes, host: str = "web1", stream: str = "stdout", *, step: str = "drain", index: int = 0
) -> OutputChunk:
    return OutputChunk(
        run_id="run-00001", step_index=index, step=step, host=host, stream=stream, data=data
    )


STARTED = [event("run.running"), event("step.running", step="drain", index=0)]
