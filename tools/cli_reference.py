"""Write ``docs/reference/cli.md`` from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click
from tools.generated import write_or_check

from tenure.cli.app import app
from tenure.cli.errors import error_types
from tenure.cli.exit_codes import MEANING
from tenure.cli.group import LazyGroup
from tenure.cli.options import Verb

HEAD = """\
# Command line

<!-- Written by `make docs` from src/tenure/cli. `make check` compares. -->

`tenure --help` lists the commands, `tenure COMMAND --help` explains one. `--json` is accepted
everywhere: one object, or one object per line where a command streams. Answers go to stdout;
errors, and what is only worth knowing, go to stderr. On a terminal progress is live, otherwise it
is lines. `NO_COLOR` is honoured. A reader that leaves early (`tenure list | head`) is no error, and
a run goes on without one.

Where a command takes `RUN`, the word `latest` means the newest run.

Commands that only look create no store. If the default one is not there yet, there are no runs yet;
if one was named that is not there, that is an error.
"""
ERRORS = """\
## Errors for programs

With `--json` an error is one JSON object, the last line on stderr:

```json
{"error": {"type": "run-not-found", "message": "no run 'my-run-01' in this store", "exit_code": 5,
           "run_id": "my-run-01", "advice": "`tenure list` shows the runs this store has; …"}}
```

`type`, `message` and `exit_code` are always there. `advice` says what to do next where the message
does not. `invalid-workflow` and `invalid-settings` carry `problems`, a list of objects with
`message`, for a workflow also `source`, `line`, `column`, `path` and `hint`. Where an error is
about one run, `run_id` names it. A type keeps its name and its meaning:
"""
SETTINGS = """\
## Settings

A flag that is named after a [setting](settings.md) wins over `tenure.toml` and over `TENURE_…` in
the environment.
"""


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"cli.md": page}, arguments)


def page(_: str = "") -> str:
    parts = [HEAD, *_exit_codes(), *_errors(), *_commands(app, "tenure"), SETTINGS]
    return "\n".join(parts).rstrip() + "\n"


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |\n|---|---|"
    for code, meaning in MEANING.items():
        yield f"| {code.value} | {meaning} |"
    yield ""


def _errors() -> Iterator[str]:
    yield ERRORS
    yield "| exit code | types |\n|---|---|"
    types = error_types()
    for code in sorted(set(types.values())):
        names = sorted(name for name, of in types.items() if of is code)
        yield f"| {code.value} | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


def _commands(group: LazyGroup, path: str) -> Iterator[str]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, LazyGroup):
            yield from _commands(command, f"{path} {name}")
        elif isinstance(command, Verb):
            yield from _command(command, f"{path} {name}")


def _command(command: Verb, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"## {path}\n"
    yield f"```console\n{path} {pieces}\n```\n"
    yield f"{_prose(command.help or '')}\n"
    rows = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
        and "--help" not in parameter.opts
    ]
    if rows:
        yield "| option | |\n|---|---|"
        for names, text in rows:
            yield f"| `{_cell(names)}` | {_cell(text)} |"
        yield ""
    examples = "\n".join(command.examples)
    yield f"```console\n{examples}\n```\n"


def _prose(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
