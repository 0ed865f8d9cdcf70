"""Whom to tell of runs, where no workflow says it: in settings, on a command line."""

from __future__ import annotations

from contextlib import suppress

from tenure.model.errors import InvalidWorkflow
from tenure.workflow.checks import check_callbacks
from tenure.workflow.dump import node_of
from tenure.workflow.grammar import CALLBACK, MOST_CALLBACKS
from tenure.workflow.nodes import Mark, Path
from tenure.workflow.reading import BAD, Enough, Reading
from tenure.workflow.shapes import ListOf
from tenure.workflow.spec import CallbackSpec, Workflow

_PLACE: Path = ("callbacks",)
_SHAPE = ListOf(CALLBACK, MOST_CALLBACKS)


def read_targets(value: object) -> tuple[CallbackSpec, ...]:
    """A list of maps, by the rules of a workflow's ``callbacks``. ``InvalidWorkflow`` holds every
    mistake."""
    reading = Reading("callbacks")

    def report(
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        offset: int | None = None,
        key: bool = False,
    ) -> None:
        if not reading.knows_better(path):
            reading.mistake(Mark(), path, message, hint)

    found: tuple[CallbackSpec, ...] = ()
    with suppress(Enough):
        read = _SHAPE.read(node_of(value, reading, _PLACE), _PLACE, reading)
        if read is not BAD:
            found = read
            check_callbacks(Workflow(name="", steps=(), callbacks=found), {}, report)
    if reading.mistakes:
        raise InvalidWorkflow(reading.mistakes)
    return found
