"""The arguments all actions share that start a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenure.model.errors import InvalidArguments
from tenure.ports.execution import Command, CopiedOutput, Copy, Output, Task
from tenure.workflow.catalogue import Argument, Form
from tenure.workflow.durations import PATTERN, parse_duration
from tenure.workflow.wording import quoted

_YES = frozenset({"1", "true", "yes", "on"})

SURROUNDINGS = (
    Argument(
        name="dir",
        elsewhere=("cwd", "chdir", "workdir", "working_dir", "working_directory"),
        in_sight=True,
        description="Working directory.",
    ),
    Argument(
        name="env",
        types=("object",),
        elsewhere=("environ", "environment"),
        description="Environment variables; the only way to set names like PATH or LD_*.",
    ),
    Argument(
        name="export_vars",
        types=("boolean",),
        description="Also take exports from lines TENURE_EXPORT:KEY=value on standard output.",
    ),
    Argument(
        name="max_output_bytes",
        types=("integer",),
        description="Keep only so many bytes of each stream; exports are read before the cut, and "
        "secrets masked.",
    ),
)
OUTPUT_PATH = Argument(
    name="output_path",
    description="A folder for a copy of all output, on the machine that executes the run: two new "
    "files for each attempt. The run's log has it anyway.",
)


def command(task: Task, *argv: str, stdin: bytes = b"") -> Command:
    """``argv`` with the task's environment (``args.env`` included), directory and user."""
    return Command(
        argv=argv, env=task.env, stdin=stdin, cwd=task.args.get("dir"), become=task.become
    )


def wants_printed_exports(task: Task) -> bool:
    wanted: Any = task.args.get("export_vars", False)
    return wanted is True or str(wanted).strip().lower() in _YES


async def copy_of(output: Output, task: Task) -> Copy | None:
    """The copy of its output that the task wants, if any. Raises ``InvalidArguments``."""
    folder = task.args.get(OUTPUT_PATH.name)
    if folder is None:
        return None
    if not isinstance(output, CopiedOutput):
        raise InvalidArguments("output_path: copies of output are not supported here")
    try:
        return await output.copy_into(str(folder))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArguments(f"output_path {quoted(str(folder), 200)}: {reason}") from error


def output_limit(task: Task) -> int | None:
    limit = task.args.get("max_output_bytes")
    return limit if isinstance(limit, int) and limit > 0 else None


# What an action is given to work on: files beside the workflow, texts in it.


def file_beside(task: Task, argument: str, most: int, otherwise: str = "") -> bytes:
    """The file the argument names, of at most so many bytes; ``otherwise`` tells what to do with a
    larger one. ``InvalidArguments``."""
    name = str(task.args[argument])
    data = task.files.get(name)
    if data is None:
        data = _from_folder(task, argument, name, most)
    if len(data) > most:
        more = f"; {otherwise}" if otherwise else ""
        raise InvalidArguments(f"{argument}: {name} is longer than {most} bytes{more}")
    return data


def _from_folder(task: Task, argument: str, name: str, most: int) -> bytes:
    if task.folder is None:
        raise InvalidArguments(
            f"{argument}: {name} did not travel with the run: it was not there, or its name not "
            "known, when the run was created"
        )
    path = Path(task.folder, name)
    if not path.exists() and Path(name).exists():
        path = Path(name)  # in the working directory, where older runners looked
    try:
        return _content(path, most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArguments(
            f"{argument}: {path} cannot be read ({reason}); it is looked up from the folder of "
            "the workflow file"
        ) from error


def _content(path: Path, most: int) -> bytes:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is no regular file")  # a pipe might never end
    with path.open("rb") as file:
        return file.read(most)


def encoded(text: str, argument: str) -> bytes:
    """Text of an argument as bytes. ``InvalidArguments``."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArguments(f"{argument} holds half a surrogate pair: no text") from error


# Durations among the arguments of actions.


def _readable(value: Any) -> bool:
    try:
        return parse_duration(value) > 0
    except ValueError:
        return False


_FORM = Form(called="a duration like 30s or 1h30m", fits=_readable, pattern=PATTERN)


def duration(name: str, description: str) -> Argument:
    return Argument(name=name, form=_FORM, description=description)


def seconds_of(task: Task, name: str, default: str | None = None) -> float | None:
    """``None`` if neither it nor a default is given."""
    given = task.args.get(name, default)
    if given is None:
        return None
    if not isinstance(given, str) or not _readable(given):
        raise InvalidArguments(f"{name} must be {_FORM.called}")
    return parse_duration(given)
