"""``script.shell``: a shell script, from the workflow file or from a file beside it."""

from __future__ import annotations

from tenure.actions.commands import CommandAction
from tenure.actions.scripts import arguments_of, script_of, script_spec, would_run_script
from tenure.actions.surroundings import command
from tenure.ports.action import Task
from tenure.ports.transport import Command
from tenure.workflow.catalogue import Text

SPEC = script_spec("script.shell", "Run a shell script with arguments, with /bin/sh.", Text.SHELL)


def build(task: Task) -> Command:
    return command(task, "/bin/sh", "-s", "--", *arguments_of(task), stdin=script_of(task))


ACTION = CommandAction(SPEC, build, would_run_script("/bin/sh"))
