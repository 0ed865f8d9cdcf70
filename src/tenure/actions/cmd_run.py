"""``cmd.run``: one command line for ``/bin/sh``."""

from __future__ import annotations

from tenure.actions.commands import CommandAction, would_run
from tenure.actions.surroundings import OUTPUT_PATH, SURROUNDINGS, command
from tenure.ports.action import Task
from tenure.ports.transport import Command
from tenure.workflow.catalogue import ActionSpec, Argument, Text

CMD = Argument(
    name="cmd",
    required=True,
    text=Text.SHELL,
    description="What to run. Variables are in the environment: ${name}.",
)
SPEC = ActionSpec(
    name="cmd.run",
    description="Run a command line with /bin/sh. Its exit status decides; there is no input.",
    arguments=(CMD, *SURROUNDINGS, OUTPUT_PATH),
    environment=True,
)


def build(task: Task) -> Command:
    return command(task, "/bin/sh", "-c", task.args["cmd"])


ACTION = CommandAction(SPEC, build, would_run("cmd"))
