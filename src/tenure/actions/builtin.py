"""Tenure's own actions, by name. Each module holds its action as ``ACTION``."""

from __future__ import annotations

MODULES = {
    "cmd.run": "tenure.actions.cmd_run",
    "shell.run": "tenure.actions.shell_run",
    "script.shell": "tenure.actions.script_shell",
    "script.python": "tenure.actions.script_python",
    "env.set": "tenure.actions.env_set",
    "template.render": "tenure.actions.template_render",
    "file.copy": "tenure.actions.file_copy",
    "http.request": "tenure.actions.http_request",
    "wait.until": "tenure.actions.wait_until",
    "wait.port": "tenure.actions.wait_port",
    "wait.event": "tenure.actions.wait_event",
    "python.call": "tenure.actions.python_call",
}
