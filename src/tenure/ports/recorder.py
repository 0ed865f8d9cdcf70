"""Looking on while a run executes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.events import RecordedEvent
from tenure.model.snapshot import RunSnapshot


class OutputChunk(Struct, frozen=True, gc=False, kw_only=True):
    run_id: str
    step_index: int
    step: str
    host: str
    stream: str
    data: bytes


class Recorder(Protocol):
    """Gets every event of a run exactly as the journal holds it, in the same order, once it is
    durable, from the run's birth to the last word of the process that executes it. Of a run
    that was taken over, from the claim on.

    What others write meanwhile (a cancel request, an approval, an annotation) comes before the next
    event of the owner, provided that the store keeps a journal (``EventLog``) that can be read.
    What is written after the run's end, or by a new owner, is not recorded here. Raising is logged
    and changes nothing.
    """

    async def record(self, event: RecordedEvent) -> None: ...


@runtime_checkable
class RunBeginning(Protocol):
    """A recorder that also wants to know the plan before the first event."""

    def begin(self, planned: RunSnapshot) -> None: ...


@runtime_checkable
class OutputRecorder(Protocol):
    """A recorder that also wants what tasks print, as it comes. Must be quick: it is not waited
    for."""

    def output(self, chunk: OutputChunk) -> None: ...
