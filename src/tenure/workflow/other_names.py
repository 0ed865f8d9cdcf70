"""What keys are called in other tools, and older files were tempted to, and what they are here."""

from __future__ import annotations

AT_THE_TOP = {
    "hosts": "inventory.hosts",
    "groups": "inventory.groups",
    "tasks": "steps",
    "jobs": "steps",
    "env": "vars",
    "variables": "vars",
    "webhooks": "callbacks",
    "id": "name",
}
IN_A_HANDLER = {
    "with": "args",
    "retry": "retries",
    "timeout_sec": "timeout",
    "become_user": "become",
    "if": "when",
}
IN_A_STEP = {
    **IN_A_HANDLER,
    "depends_on": "needs",
    "with_items": "loop",
    "hosts": "targets",
    "serial": "rolling",
    "ignore_errors": "continue_on_error",
    "on_error": "continue_on_error",
    "register": "expect_vars",
}
FOR_COMMANDS = ("run", "shell", "command", "cmd", "script", "exec")
"""What a step that is a command is called."""
_LEFT_TO_ITS_STEP = {
    "targets": "it runs on the hosts that notified it",
    "needs": "it runs after the step that notifies it",
    "loop": "it runs after each item of the step that notifies it",
    "rolling": "it runs after each batch of the step that notifies it",
    "continue_on_error": "if it fails, the step that notified it does: say it there",
    "expect_vars": "what a handler exports is not passed on to other steps",
}
LEFT_TO_THE_STEP = {
    **_LEFT_TO_ITS_STEP,
    **{
        other: _LEFT_TO_ITS_STEP[name]
        for other, name in IN_A_STEP.items()
        if name in _LEFT_TO_ITS_STEP
    },
}
"""Keys that a step has and a handler does not, by all their names: what a handler does instead."""
