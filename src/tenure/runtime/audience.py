"""Whoever looks on: recorders and the application's notifier.

They get the events of one run in the order of its journal, each after it is durable, from a task of
their own: neither a slow nor a failing one holds up or changes the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from tenure.model.events import Event, RecordedEvent, record
from tenure.model.snapshot import RunSnapshot
from tenure.model.status import RunStatus
from tenure.model.update import Receipt
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.recorder import OutputChunk, OutputRecorder, Recorder, RunBeginning
from tenure.wire.callback import payload

T = TypeVar("T")

_log = logging.getLogger("tenure.runtime")


class Audience:
    """The onlookers of one run."""

    def __init__(
        self,
        recorders: Sequence[Recorder],
        notifier: RunStateNotifier | None,
        planned: RunSnapshot,
    ) -> None:
        self._recorders = recorders
        self._notifier = notifier
        self._planned = planned
        self._listeners: list[OutputRecorder] = []
        self._telling: asyncio.Task[None] | None = None
        if not recorders and notifier is None:
            return
        self._heard: asyncio.Queue[tuple[RecordedEvent, RunStatus] | None] = asyncio.Queue()
        self._listeners = [each for each in recorders if isinstance(each, OutputRecorder)]
        self._telling = asyncio.create_task(self._tell())

    def hear(self, events: tuple[Event, ...], receipt: Receipt) -> None:
        if self._telling is None or receipt.updated_at is None:
            return
        for seq, event in enumerate(events):
            recorded = record(
                event,
                run_id=receipt.run_id,
                version=receipt.version,
                seq=seq,
                at=receipt.updated_at,
                fence=receipt.fence,
            )
            self._heard.put_nowait((recorded, receipt.status))

    @property
    def wants_output(self) -> bool:
        return bool(self._listeners)

    def output(self, chunk: OutputChunk) -> None:
        for listener in self._listeners:
            self._quietly(listener.output, chunk)

    async def leave(self, patience: float) -> None:
        """Let them finish what they were told, for ``patience`` seconds at most."""
        if self._telling is None:
            return
        self._heard.put_nowait(None)
        _, late = await asyncio.wait([self._telling], timeout=patience)
        for task in late:
            _log.warning(
                "recorders or notifier are still busy %.1f s after the run ended: %d events are "
                "not told",
                patience,
                self._heard.qsize(),
            )
            task.cancel()

    async def _tell(self) -> None:
        told = await self._heard.get()
        if told is not None:  # it was born
            for recorder in self._recorders:
                if isinstance(recorder, RunBeginning):
                    self._quietly(recorder.begin, self._planned)
        while told is not None:
            await self._tell_all(*told)
            told = await self._heard.get()

    async def _tell_all(self, event: RecordedEvent, run_status: RunStatus) -> None:
        for recorder in self._recorders:
            try:
                await recorder.record(event)
            except Exception:  # noqa: BLE001  an onlooker never changes the run
                _log.exception("recorder %r failed on %s", recorder, event.type)
        if self._notifier is not None and event.status is not None:
            said = payload(event, self._planned.workflow_name, run_status)
            try:
                await self._notifier.notify(said)
            except Exception:  # noqa: BLE001
                _log.exception("notifier %r failed on %s", self._notifier, event.type)

    @staticmethod
    def _quietly(call: Callable[[T], None], value: T) -> None:
        try:
            call(value)
        except Exception:  # noqa: BLE001
            _log.exception("recorder failed in %r", call)
