"""From text to a workflow, or to all its mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from tenure.model.errors import InvalidWorkflow, Mistake, Wanted
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.checks import CHECKS, check_callbacks, variables_in, works_of
from tenure.workflow.plan import OWN
from tenure.workflow.schema import CALLBACK, MOST_CALLBACKS, ListOf, grammar, node_of
from tenure.workflow.spec import CallbackSpec, Workflow
from tenure.workflow.undefined import Undefined, unknown_variables
from tenure.workflow.yaml import (
    INVALID,
    MOST_MISTAKES,
    Enough,
    Mark,
    Node,
    Path,
    Reading,
    Scalar,
    mark_of,
    node_at,
    read_document,
)

MOST_WANTED = 1_000


class Parsed(Struct, frozen=True):
    workflow: Workflow
    notices: tuple[Mistake, ...] = ()
    """Remarks on a file without mistakes."""
    wanted: tuple[Wanted, ...] = ()
    """Variables that the file uses and does not define."""


def parse_workflow(text: str, catalogue: Catalogue, *, source: str = "workflow") -> Parsed:
    """``text`` is YAML or JSON. ``InvalidWorkflow`` holds every mistake, in the file's order."""
    reading = Reading(source)
    return _parsed(lambda: read_document(text, reading), catalogue, reading, text)


def check_workflow(workflow: Workflow, catalogue: Catalogue) -> Parsed:
    """The same for a workflow built in Python; returns it as a file would have given it."""
    reading = Reading("workflow")
    return _parsed(lambda: node_of(workflow, reading), catalogue, reading, "")


def _parsed(
    document: Callable[[], Node], catalogue: Catalogue, reading: Reading, text: str
) -> Parsed:
    workflow = root = INVALID
    with suppress(Enough):
        root = document()
        workflow = grammar(catalogue).read(root, (), reading)
        if workflow is not INVALID:
            _check(workflow, catalogue, root, reading, text)
            _remark(workflow, catalogue, root, reading)
    if reading.mistakes:
        raise InvalidWorkflow(in_order(reading.mistakes))
    return Parsed(
        workflow,
        tuple(in_order(reading.notices)),
        tuple(_wanted(unknown_variables(workflow, catalogue), root, reading, text)),
    )


def placed(found: Iterable[tuple[Path, str, str]], source: str | None, text: str) -> list[Mistake]:
    """Findings (path, message, hint) in a valid workflow as mistakes, with their place in ``text``
    if ``source`` names it."""
    reading = Reading(source or "workflow")
    root = read_document(text, reading) if source is not None else None
    return in_order(
        reading.remark(Mark() if root is None else mark_of(root, path), path, message, hint)
        for path, message, hint in found
    )


def in_order(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Sorted by their place in the file."""
    return sorted(mistakes, key=_place_in_file)


def _place_in_file(mistake: Mistake) -> tuple[int, int]:
    return mistake.line or 0, mistake.column or 0


def _check(
    workflow: Workflow, catalogue: Catalogue, root: Node, reading: Reading, text: str
) -> None:
    found: list[tuple[Mark, Path, str, str | None]] = []
    left = MOST_MISTAKES - len(reading.mistakes)

    def report(
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        offset: int | None = None,
        key: bool = False,
    ) -> None:
        if not reading.knows_better(path):
            mark = mark_of(root, path, key=True) if key else _place(root, path, offset, text)
            found.append((mark, path, message, hint))
        if len(found) >= left:
            raise Enough

    with suppress(Enough):
        for check in CHECKS:
            check(workflow, catalogue, report)
    for mark, path, message, hint in found:
        reading.mistake(mark, path, message, hint)


def _wanted(unknown: Iterable[Undefined], root: Node, reading: Reading, text: str) -> list[Wanted]:
    found = [
        Wanted(
            name=each.name,
            certain=each.certain,
            step=int(each.path[1]) if each.path[0] == "steps" else None,
            said=reading.remark(
                _place(root, each.path, each.offset, text), each.path, each.message, each.hint
            ),
        )
        for each in islice(unknown, MOST_WANTED)
    ]
    return sorted(found, key=lambda wanted: _place_in_file(wanted.said))


def _place(root: Node, path: Path, offset: int | None, text: str) -> Mark:
    node, mark = node_at(root, path), mark_of(root, path)
    if offset is None or not isinstance(node, Scalar) or not mark.line:
        return mark
    return _inside(node, offset, text) or mark


def _inside(node: Scalar, offset: int, text: str) -> Mark | None:
    """The place of the ``offset``-th character of a scalar, if its lines are as in the file."""
    before = node.text[:offset].split("\n")
    down = len(before) - 1 + (1 if node.style == "|" else 0)
    if node.style == ">" or (down and node.style != "|"):
        return None
    lines = text.split("\n")
    row = node.mark.line - 1 + down
    said = node.text.split("\n")[len(before) - 1]
    start = lines[row].find(said, 0 if down else node.mark.column - 1) if row < len(lines) else -1
    return Mark(row + 1, start + len(before[-1]) + 1) if start >= 0 else None


def _remark(workflow: Workflow, catalogue: Catalogue, root: Node, reading: Reading) -> None:
    for path, message in _remarks(workflow, catalogue):
        reading.notice(mark_of(root, path, key=True), path, message)


def _remarks(workflow: Workflow, catalogue: Catalogue) -> Iterator[tuple[Path, str]]:
    for name in ("env_packages", "validation_env", "tests"):
        if getattr(workflow, name):
            yield (name,), "is accepted from older files and has no effect"
    for place, work in works_of(workflow):
        spec = catalogue.get(work.action)
        if spec is not None and spec.obsolete is not None:
            said = f"{spec.name} is accepted from older files and can only fail: {spec.obsolete}"
            yield (*place, "action"), said
    both = sorted(set(workflow.inventory.hosts) & set(workflow.inventory.groups))
    for name in both:
        path: Path = ("inventory", "groups", name)
        yield path, f"{name!r} is also a host, and as a target means the host"
    for path, names in variables_in(workflow):
        for name in OWN.keys() & names:
            yield (*path, name), f"hides Tenure's own variable {name!r}: {OWN[name]}"


# Callback targets from settings or a command line.


_PLACE: Path = ("callbacks",)
_SHAPE = ListOf(CALLBACK, MOST_CALLBACKS)


def read_targets(value: object) -> tuple[CallbackSpec, ...]:
    """Targets from a list of maps, by the rules of a workflow's ``callbacks``. ``InvalidWorkflow``
    holds every mistake."""
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
        if read is not INVALID:
            found = read
            check_callbacks(Workflow(name="", steps=(), callbacks=found), {}, report)
    if reading.mistakes:
        raise InvalidWorkflow(reading.mistakes)
    return found
