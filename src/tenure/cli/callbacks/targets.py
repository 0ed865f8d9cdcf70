"""Where callbacks go, as people type it."""

from __future__ import annotations

from collections.abc import Mapping

import click

from tenure.model.errors import InvalidWorkflow
from tenure.model.snapshot import CallbackTarget
from tenure.workflow.spec import CallbackSpec


def target_of(spec: CallbackSpec, name: str) -> CallbackTarget:
    return CallbackTarget(
        name=name,
        url=spec.url,
        events=tuple(spec.events),
        secret_env=spec.secret_env,
        headers=spec.headers,
    )


def problem_with(target: CallbackTarget, environ: Mapping[str, str]) -> str | None:
    """Why nothing can be sent to it from a process with this environment, if so."""
    from tenure.notifiers.http.signing import secret_of
    from tenure.notifiers.http.target import UnusableTarget, route_to

    try:
        route_to(target)
        if target.secret_env is not None:
            secret_of(target.secret_env, environ)
    except UnusableTarget as error:
        return str(error)
    return None


def checked_targets(*given: Mapping[str, str | None]) -> tuple[CallbackSpec, ...]:
    """What was typed, by the rules of a workflow's ``callbacks``."""
    from tenure.workflow.targets import read_targets

    try:
        return read_targets(given)
    except InvalidWorkflow as error:
        first = error.mistakes[0]
        hint = f"; {first.hint}" if first.hint else ""
        place = first.path if len(given) > 1 else first.path.rpartition(".")[2]
        raise click.UsageError(f"{place}: {first.message}{hint}.") from error
