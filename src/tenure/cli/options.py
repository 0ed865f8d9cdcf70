"""Shared by all commands: examples in the help, and common options."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Verb(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)


def write_examples(examples: tuple[str, ...], formatter: click.HelpFormatter) -> None:
    with formatter.section("Examples" if len(examples) > 1 else "Example"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def verb(name: str, *examples: str) -> Callable[[Callable[..., Any]], Verb]:
    """The decorated function returns an exit code; ``None`` means success."""

    def decorate(function: Callable[..., Any]) -> Verb:
        return click.command(name, cls=Verb, examples=examples)(function)

    return decorate


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of text for people."
)


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        help="Where runs are kept, like sqlite:///runs.db.  [env: TENURE_STORE; "
        "default: SQLite in your data directory]",
    )(function)


def broker_option(function: F) -> F:
    return click.option(
        "--broker",
        metavar="URL",
        help="Notifies workers of queued runs, like redis://localhost:6379/0; without it they "
        "poll.  [env: TENURE_BROKER; default: none]",
    )(function)


def page_options(function: F) -> F:
    """For lists."""
    from tenure.cli.arguments import (
        Whole,
    )  # not for the help of groups
    from tenure.model.query import MAX_PAGE

    cursor = click.option("--cursor", metavar="TEXT", help="Continue where an earlier list ended.")
    limit = click.option(
        "--limit",
        type=Whole(1, MAX_PAGE),
        metavar="NUMBER",
        default=20,
        show_default=True,
        help="How many to show at most.",
    )
    return limit(cursor(function))


def run_argument(function: F) -> F:
    return click.argument("run_id", metavar="RUN", shell_complete=completes("run_ids"))(function)


def variable_options(function: F) -> F:
    for option in (
        click.option(
            "--vars-file",
            "vars_files",
            metavar="FILE",
            multiple=True,
            help="Variables from a YAML or JSON file; --var takes precedence.",
        ),
        click.option(
            "--var",
            "given",
            metavar="NAME=TEXT",
            multiple=True,
            help="Set a variable; NAME:=JSON for numbers, lists and so on.",
        ),
    ):
        function = option(function)
    return function


def limit_option(function: F) -> F:
    return click.option(
        "--limit",
        metavar="HOST,…",
        multiple=True,
        callback=_split,
        help="Only these hosts and groups are touched.",
    )(function)


def workflow_options(function: F) -> F:
    """How a workflow is read, for running and for planning."""
    for option in (
        click.option(
            "--local", is_flag=True, help="Every host is this machine: for trying things."
        ),
        limit_option,
        variable_options,
    ):
        function = option(function)
    return function


def new_run_options(function: F) -> F:
    """Options of a new run, wherever it is executed."""
    from tenure.cli.arguments import Duration  # not for the help of groups

    for option in (
        click.option(
            "--timeout", type=Duration(), metavar="2h", help="For the whole run; 0: no limit."
        ),
        click.option(
            "--callback",
            "callbacks",
            metavar="URL",
            multiple=True,
            help="Send every status of the run to this address, unsigned.",
        ),
        click.option(
            "--label",
            "labels",
            metavar="KEY=VALUE",
            multiple=True,
            help="A label to find the run by.",
        ),
        click.option("--run-id", metavar="ID", help="Your own id for the run."),
        click.option("--approve", is_flag=True, help="Approve a workflow that asks for approval."),
    ):
        function = option(function)
    return function


def secrets_option(function: F) -> F:
    return click.option(
        "--secret",
        "secrets",
        metavar="NAME[=@FILE]",
        multiple=True,
        help="A secret variable: from TENURE_SECRET_NAME, from NAME, from a file, or asked for.",
    )(function)


def secret_names_option(function: F) -> F:
    """For commands that do not run: so that the options of a run can be given unchanged."""
    return click.option(
        "--secret",
        "secrets",
        metavar="NAME[=@FILE]",
        multiple=True,
        help="As for a run; only the name is used, no value is read or asked for.",
    )(function)


def _split(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for text in given for name in text.split(",") if name.strip())
    if given and not names:
        # Perhaps an empty variable of a script: touching all hosts then would be a disaster.
        raise click.BadParameter("names no host; leave it out to mean all hosts.", ctx, param)
    return names


def completes(what: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Completes with the function ``what`` of ``completion``, imported only when needed."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        completing = import_module("tenure.cli.completion")
        found: list[Any] = getattr(completing, what)(ctx, incomplete)
        return found

    return complete
