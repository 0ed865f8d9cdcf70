"""``shell.run``: a shell script written in the workflow file."""

from __future__ import annotations

from tenure.actions.commands import CommandAction, would_run
from tenure.actions.scripts import encoded_script
from tenure.actions.surroundings import OUTPUT_PATH, SURROUNDINGS, command
from tenure.ports.action import Task
from tenure.ports.transport import Command
from tenure.workflow.catalogue import ActionSpec, Argument, Text

SPEC = ActionSpec(
    name="shell.run",
    description="Run a script with /bin/sh, handed over on its standard input.",
    arguments=(
        Argument(
            name="script",
            required=True,
            text=Text.SHELL,
            description="The text of the script. Begin with `set -e` to stop at the first error.",
        ),
        *SURROUNDINGS,
        OUTPUT_PATH,
    ),
    environment=True,
)


def build(task: Task) -> Command:
    return command(task, "/bin/sh", "-s", "--", stdin=encoded_script(task, "script"))


ACTION = CommandAction(SPEC, build, would_run("script"))
