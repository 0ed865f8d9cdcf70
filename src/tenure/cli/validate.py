"""``tenure validate``."""

from __future__ import annotations

import click
from msgspec import Struct

from tenure.cli.display import json_lines
from tenure.cli.display.mistakes import how_many, mistake_line
from tenure.cli.display.paint import in_color, note, say, sign
from tenure.cli.display.text import one_line
from tenure.cli.exits import Exit
from tenure.cli.verb import completes, json_option, verb
from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.workflow_file import load_workflow


class Verdict(Struct, frozen=True, kw_only=True):
    file: str
    valid: bool
    mistakes: tuple[Mistake, ...] = ()
    notices: tuple[str, ...] = ()


@verb("validate", "tenure validate deploy.yaml", "tenure validate workflows/*.yaml --json")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=completes("workflow_files")
)
@json_option
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Check workflow files; report every mistake with its place.

    One line per mistake, as compilers write them: file:line:column. Also things that are no
    mistake but worth knowing. Exit code 2 if a file has mistakes.
    """
    verdicts = [_judge(name) for name in files]
    if as_json:
        say(json_lines.as_json({"files": verdicts}))
    else:
        for verdict in verdicts:
            _tell(verdict)
    return Exit.SUCCESS if all(each.valid for each in verdicts) else Exit.USAGE


def _judge(name: str) -> Verdict:
    try:
        file = load_workflow(name)
    except InvalidWorkflow as error:
        return Verdict(file=name, valid=False, mistakes=error.mistakes)
    return Verdict(file=name, valid=True, notices=file.notices)


def _tell(verdict: Verdict) -> None:
    for mistake in verdict.mistakes:
        say(mistake_line(mistake))
    for notice in verdict.notices:
        note(f"notice: {notice}")
    status = "success" if verdict.valid else "failed"
    said = "is valid" if verdict.valid else f"has {how_many(verdict.mistakes)}"
    say(f"{in_color(status, sign(status))} {one_line(verdict.file)} {said}")
