"""Groups of commands that are imported when they are called.

Names and one-line helps are listed where the group is defined, so that ``tenure --help`` and
completing a command load no command at all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from tenure.cli.options import write_examples

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """``sections`` maps a title to its commands, a command to its one-line help. A command ``x``
    is the name ``command`` in the module ``package.x``, unless it was added to the group."""

    def __init__(
        self,
        *args: Any,
        package: str = "tenure.cli.commands",
        sections: dict[str, dict[str, str]] | None = None,
        examples: tuple[str, ...] = (),
        **rest: Any,
    ) -> None:
        super().__init__(*args, **rest)
        self.package = package
        self.sections = sections or {}
        self.examples = examples
        self._helps = {
            name: line for verbs in self.sections.values() for name, line in verbs.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._helps)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._helps:
            return None
        if name in self.commands:
            return self.commands[name]
        command: click.Command = import_module(f"{self.package}.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._helps and not args[0].startswith("-"):
            ctx.fail(self._unknown(args[0]))
        return super().resolve_command(ctx, args)

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(name, self._helps, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(self._helps)}."
        return f"No such command {name[:60]!r}. {hint}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._helps))
        for title, verbs in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in verbs.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=line)
            for name, line in self._helps.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)
