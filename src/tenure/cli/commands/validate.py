"""``tenure validate``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click
from msgspec import Struct

from tenure.cli.display import json_lines
from tenure.cli.display.text import in_color, note, one_line, say, sign
from tenure.cli.errors import how_many, mistake_line
from tenure.cli.exit_codes import Exit
from tenure.cli.options import completes, json_option, secret_names_option, variable_options, verb
from tenure.cli.secrets import names_of, undeclared
from tenure.cli.variables import check_files, judged_names, variables
from tenure.model.errors import InvalidWorkflow, Mistake, Wanted
from tenure.workflow.parse import in_order
from tenure.workflow.undefined import first_uses
from tenure.workflow.wording import listed
from tenure.workflow_file import load_workflow


class Verdict(Struct, frozen=True, kw_only=True):
    file: str
    valid: bool
    mistakes: tuple[Mistake, ...] = ()
    notices: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Variables without which its run is refused, or certain to fail."""


@verb(
    "validate",
    "tenure validate workflows/*.yaml --json",
    "tenure validate deploy.yaml --var release=1.4 --secret db_password",
)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=completes("workflow_files")
)
@variable_options
@secret_names_option
@json_option
def command(
    files: tuple[str, ...],
    vars_files: tuple[str, ...],
    given: tuple[str, ...],
    secrets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check workflow files; report every mistake with its place.

    One line per mistake, as compilers print them: file:line:column. Also reports what is worth
    knowing, such as variables that a run has to be given. With --var, --vars-file or --secret it is
    checked as a run with these would be: a variable missing then is a mistake. Exit code 2 if a
    file has mistakes.
    """
    known, hidden = None, names_of(secrets)
    values = variables(vars_files, given)
    if vars_files or given or secrets:
        known = values.keys() | hidden
    verdicts = [_judge(name, given, values, known, hidden) for name in files]
    if as_json:
        say(json_lines.as_json({"files": verdicts}))
    else:
        for verdict in verdicts:
            _tell(verdict)
    return Exit.SUCCESS if all(each.valid for each in verdicts) else Exit.USAGE


def _judge(
    name: str,
    given: Collection[str],
    values: Mapping[str, Any],
    known: Collection[str] | None,
    secrets: Collection[str],
) -> Verdict:
    """``known`` are the variables of the run, ``secrets`` among them; ``None``: none were given."""
    mistakes: tuple[Mistake, ...] = ()
    notices: tuple[str, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    try:
        file = load_workflow(name)
    except InvalidWorkflow as error:
        mistakes = error.mistakes
    else:
        notices, wanted = file.notices, file.wanted
        strange = undeclared(secrets, file.workflow.secrets)
        mistakes = tuple(Mistake(source=name, message=f"--secret: {each}") for each in strange)
        wrong, unknown = judged_names(file, given)
        mistakes += tuple(Mistake(source=name, message=f"--var: {each}") for each in wrong)
        notices += tuple(unknown)
        try:
            check_files(file, values)
        except InvalidWorkflow as error:
            mistakes += error.mistakes
    missing = [each for each in wanted if each.name not in (known or ())]
    needed = [each for each in missing if each.certain]
    lacking = first_uses(needed) if known is not None else ()
    mistakes = (*mistakes, *lacking)
    return Verdict(
        file=name,
        valid=not mistakes,
        mistakes=tuple(in_order(mistakes)),
        notices=(*notices, *(str(said) for said in first_uses(missing) if said not in lacking)),
        needs=tuple(dict.fromkeys(each.name for each in needed)),
    )


def _tell(verdict: Verdict) -> None:
    for mistake in verdict.mistakes:
        say(mistake_line(mistake))
    for notice in verdict.notices:
        note(f"notice: {notice}")
    status = "success" if verdict.valid else "failed"
    said = "is valid" if verdict.valid else f"has {how_many(verdict.mistakes)}"
    if verdict.valid and verdict.needs:
        said += f" for runs that are given {listed(verdict.needs)}"
    say(f"{in_color(status, sign(status))} {one_line(verdict.file)} {said}")
