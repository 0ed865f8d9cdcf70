"""The arguments all actions share that start a process."""

from __future__ import annotations

from typing import Any

from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.ports.transport import Command, CopiedOutput, Copy, Output
from tenure.workflow.catalogue import Argument
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
    """``argv`` where and as whom the task says. ``task.env`` holds ``args.env`` already."""
    return Command(
        argv=argv, env=task.env, stdin=stdin, cwd=task.args.get("dir"), become=task.become
    )


def wants_printed_exports(task: Task) -> bool:
    wanted: Any = task.args.get("export_vars", False)
    return wanted is True or str(wanted).strip().lower() in _YES


async def copy_of(output: Output, task: Task) -> Copy | None:
    """Where the task wants its output too. ``InvalidArguments``."""
    folder = task.args.get(OUTPUT_PATH.name)
    if folder is None:
        return None
    if not isinstance(output, CopiedOutput):
        raise InvalidArguments("output_path: whoever executes this keeps no copies of output")
    try:
        return await output.copy_into(str(folder))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArguments(f"output_path {quoted(str(folder), 200)}: {reason}") from error


def output_limit(task: Task) -> int | None:
    limit = task.args.get("max_output_bytes")
    return limit if isinstance(limit, int) and limit > 0 else None
