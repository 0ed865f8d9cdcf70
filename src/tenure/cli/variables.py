"""Variables from the command line and from files, and ``--limit``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from tenure.bootstrap import default_actions
from tenure.cli.arguments import NOT_A_VARIABLE, is_variable, values
from tenure.cli.display.text import note
from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.runtime.prepare import files_of
from tenure.workflow.inventory import roster_of
from tenure.workflow.plan import make_plan
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import did_you_mean, listed
from tenure.workflow.yaml import MAX_DOCUMENT_BYTES, Enough, Entries, Reading, plain, read_document
from tenure.workflow_file import WorkflowFile

_WORD = re.compile(r"[A-Za-z_][\w-]*|\w+")


def variables(files: Iterable[str], given: Iterable[str]) -> dict[str, Any]:
    """Variables of files, later files first in precedence; those of the command line above them."""
    found: dict[str, Any] = {}
    for name in files:
        found.update(values_of_file(Path(name)))
    typed = values(given, "--var")
    for name in typed:
        if not is_variable(name):
            raise click.BadParameter(f"{name[:60]!r} {NOT_A_VARIABLE}.", param_hint="--var")
    return {**found, **typed}


def values_of_file(path: Path) -> dict[str, Any]:
    """Variables from YAML or JSON, parsed as a workflow file is. ``InvalidWorkflow``."""
    reading = Reading(str(path))
    root = None
    with suppress(Enough):
        root = read_document(_text(path), reading)
    if isinstance(root, Entries):
        for name in root.entries:
            if not is_variable(name):
                mark = root.keys.get(name, root.mark)
                reading.mistake(mark, (), f"{name[:60]!r} {NOT_A_VARIABLE}")
    if reading.mistakes:
        raise InvalidWorkflow(reading.mistakes)
    if not isinstance(root, Entries):
        raise _wrong(path, "must be a map of variables: name: value")
    found: dict[str, Any] = plain(root)
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_DOCUMENT_BYTES + 1).decode()
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not UTF-8 text: byte {error.start}") from error


def _wrong(path: Path, message: str) -> InvalidWorkflow:
    return InvalidWorkflow([Mistake(source=str(path), message=message)])


# Names after ``--var``.


def check_var_names(file: WorkflowFile, given: Iterable[str]) -> None:
    """``BadParameter`` for a name that is close to a declared one; says which others the workflow
    does not mention: a script may read them from its environment."""
    wrong, notices = judged_names(file, given)
    if wrong:
        raise click.BadParameter(f"{wrong[0]}.", param_hint="--var")
    for text in notices:
        note(f"notice: {text}")


def judged_names(file: WorkflowFile, given: Iterable[str]) -> tuple[list[str], list[str]]:
    """What is wrong with names after ``--var``, and what is worth knowing."""
    workflow = file.workflow
    hosts = roster_of(workflow.inventory).hosts.values()
    declared = {*workflow.vars, *workflow.secrets, *(name for host in hosts for name in host.vars)}
    used = declared | set(_WORD.findall(file.text))
    wrong: list[str] = []
    notices: list[str] = []
    for name in values(given, "--var"):
        if name in used:
            continue
        meant = did_you_mean(name, declared)
        if meant:
            wrong.append(f"the workflow does not declare a variable {name!r}; {meant}")
        else:
            notices.append(
                f"--var {name}: the workflow does not mention it; commands and scripts find it in "
                "their environment"
            )
    return wrong, notices


# Files that actions need.


def check_files(
    file: WorkflowFile,
    known: Mapping[str, Any],
    *,
    limit: Sequence[str] = (),
    local: bool = False,
    waits: bool = False,
) -> Mapping[str, bytes]:
    """Says which are not beside the workflow. ``InvalidWorkflow`` for those that are missing."""
    catalogue = {name: action.spec for name, action in default_actions().items()}
    plan = make_plan(file.workflow, limit=limit, local=local)
    found = files_of(file, plan, catalogue, known, strict=waits)
    for text in found.notices:
        note(f"notice: {text}")
    return found.files


def check_limit(workflow: Workflow, limit: Sequence[str]) -> None:
    """Check ``--limit`` here: planning would report it as a mistake of the workflow."""
    if not limit:
        return
    roster = roster_of(workflow.inventory)
    for name in limit:
        if not roster.knows(name):
            hint = did_you_mean(name, roster.names) or f"there are: {listed(roster.names)}"
            raise click.BadParameter(
                f'there is no host or group "{name[:60]}"; {hint}', param_hint="--limit"
            )
