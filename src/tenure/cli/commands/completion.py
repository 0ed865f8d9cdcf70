"""``tenure completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tenure.cli.app import app
from tenure.cli.display import json_lines
from tenure.cli.display.text import say
from tenure.cli.entry import COMPLETION
from tenure.cli.options import json_option, verb


@verb(
    "completion",
    'eval "$(tenure completion bash)"          # in ~/.bashrc',
    'eval "$(tenure completion zsh)"           # in ~/.zshrc',
    "tenure completion fish > ~/.config/fish/completions/tenure.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the completion script of a shell.

    Completes commands and options, and also run ids, steps, hosts, workflow files and statuses.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    script = kind(app, {}, "tenure", COMPLETION).source_template % {
        "complete_func": "_tenure_completion",
        "complete_var": COMPLETION,
        "prog_name": "tenure",
    }
    say(json_lines.as_json({"shell": shell, "script": script}) if as_json else script.rstrip())
