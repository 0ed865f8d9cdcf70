"""``script.python``: a Python script, run by the host's ``python3``."""

from __future__ import annotations

from tenure.actions.commands import CommandAction
from tenure.actions.scripts import arguments_of, script_of, script_spec, would_run_script
from tenure.actions.surroundings import command
from tenure.ports.action import Task
from tenure.ports.transport import Command
from tenure.workflow.catalogue import Text

SPEC = script_spec(
    "script.python",
    "Run a Python script with arguments, with the host's python3. Variables are in os.environ.",
    Text.PYTHON,
)


def build(task: Task) -> Command:
    return command(task, "python3", "-", *arguments_of(task), stdin=script_of(task))


ACTION = CommandAction(SPEC, build, would_run_script("python3"))
