"""What a step prints, behind the word that it runs."""

from __future__ import annotations

from collections.abc import Callable

from tenure.model.snapshot import RunSnapshot
from tenure.model.status import StepStatus
from tenure.ports.recorder import OutputChunk

_MOST_HELD = 1024 * 1024
_EACH = 256
"""Bytes that even an empty chunk takes, about."""


class HeldOutput:
    """Hands on output as it comes, of a step that nobody has heard of as soon as they have: output
    takes a shorter way than events. Past a bound it is handed on nevertheless: late words about a
    step are better than lost output."""

    def __init__(self, show: Callable[[OutputChunk], None]) -> None:
        self._show = show
        self._known: set[int] = set()
        self._held: list[OutputChunk] = []
        self._size = 0

    def begin(self, planned: RunSnapshot) -> None:
        """Of steps that others began nobody says once more that they run."""
        begun = (step.index for step in planned.steps if step.status is not StepStatus.PENDING)
        self._known.update(begun)

    def add(self, chunk: OutputChunk) -> None:
        if chunk.step_index in self._known:
            self._show(chunk)
            return
        self._held.append(chunk)
        self._size += len(chunk.data) + _EACH
        if self._size > _MOST_HELD:
            self.let_go()

    def heard_of(self, step_index: int) -> None:
        if step_index not in self._known:
            self._known.add(step_index)
            self._hand_on()

    def let_go(self) -> None:
        self._known.update(chunk.step_index for chunk in self._held)
        self._hand_on()

    def _hand_on(self) -> None:
        held, self._held, self._size = self._held, [], 0
        for chunk in held:
            self.add(chunk)
