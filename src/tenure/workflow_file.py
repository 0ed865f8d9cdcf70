"""Reads workflows from files and texts, and checks them against the available actions."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from msgspec import Struct

from tenure.bootstrap import default_actions
from tenure.model.errors import InvalidWorkflow, Mistake, Wanted
from tenure.ports.execution import Action
from tenure.runtime.recipe import digest_of
from tenure.workflow.parse import parse_workflow
from tenure.workflow.schema import workflow_text
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import called, listed
from tenure.workflow.yaml import MAX_DOCUMENT_BYTES, SAVE_AS_UTF_8, mark_after

_MAX_ENTRIES = 10_000


class WorkflowFile(Struct, frozen=True, kw_only=True):
    """A workflow and the text it was read from, which is stored with its runs."""

    workflow: Workflow
    text: str
    digest: str
    source: str | None = None
    folder: str | None = None
    """Where files for actions are looked up."""
    notices: tuple[str, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    """Variables that it uses but does not define."""


def load_workflow(path: str | Path, actions: Mapping[str, Action] | None = None) -> WorkflowFile:
    """Read and check a file. Raises ``InvalidWorkflow`` with all mistakes."""
    path = Path(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        mistake = Mistake(
            source=str(path), message=f"cannot be read: {reason}", hint=_files_instead(path)
        )
        raise InvalidWorkflow([mistake]) from error
    text = _decoded(data, str(path))
    return read_workflow(text, source=str(path), folder=path.parent, actions=actions)


def _files_instead(path: Path) -> str | None:
    """A hint with similar or existing workflow files, for a mistyped name or a wrong folder."""
    folder = path if path.is_dir() else path.parent
    try:
        entries = islice(folder.iterdir(), _MAX_ENTRIES)
        there = sorted(each.name for each in entries if each.suffix in (".yaml", ".yml"))
    except OSError:
        return f"there is no folder {folder}; you are in {Path.cwd()}"
    if not there:
        return f"there is no workflow file in {folder.absolute()}"
    if folder == path:
        return f"name a file in it: {listed(there, 5)}"
    by_stem = {Path(name).stem: name for name in there}  # the endings would make all similar
    close = get_close_matches(path.stem, by_stem, n=1)
    return f"did you mean {by_stem[close[0]]!r}?" if close else f"there is {listed(there, 5)}"


def _decoded(data: bytes, source: str) -> str:
    if len(data) > MAX_DOCUMENT_BYTES:  # refused for its size later; its last character may be cut
        return data.decode(errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        where = mark_after(data[: error.start].decode("utf-8-sig"))
        mistake = Mistake(
            source=source,
            line=where.line,
            column=where.column,
            message=f"is not UTF-8 text: the byte \\x{data[error.start]:02x}",
            hint=SAVE_AS_UTF_8,
        )
        raise InvalidWorkflow([mistake]) from error


def read_workflow(
    text: str,
    *,
    source: str = "workflow",
    folder: str | Path | None = None,
    actions: Mapping[str, Action] | None = None,
) -> WorkflowFile:
    """As ``load_workflow``, from text. ``source``: its name in mistakes."""
    known = default_actions() if actions is None else actions
    catalogue = {name: action.spec for name, action in known.items()}
    parsed = parse_workflow(text, catalogue, source=source)
    return WorkflowFile(
        workflow=parsed.workflow,
        text=text,
        digest=digest_of(text),
        source=source,
        folder=str(Path(folder).absolute()) if folder is not None else None,
        notices=tuple(str(notice) for notice in parsed.notices),
        wanted=parsed.wanted,
    )


def as_file(workflow: object) -> WorkflowFile:
    """A workflow built in Python is stored as JSON, which is YAML too. ``InvalidWorkflow`` if it is
    no workflow."""
    if isinstance(workflow, WorkflowFile):
        return workflow
    if not isinstance(workflow, Workflow):
        wrong = f"expected a workflow, as load_workflow reads it, and got {called(workflow)}"
        raise InvalidWorkflow([Mistake(message=wrong)])
    text = workflow_text(workflow)
    return WorkflowFile(workflow=workflow, text=text, digest=digest_of(text))
