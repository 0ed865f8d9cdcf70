"""What a caller gives a run and the record keeps: no secret's value may be in it.

What stands in the workflow file is not looked at, also if it is given once more: whoever has the
file has it anyway, and the definition is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tenure.model.errors import InvalidOptions
from tenure.runtime.masking import SHORTEST_TELLING, Masks, is_too_short
from tenure.runtime.options import RunOptions
from tenure.workflow.spec import Workflow

Kept = tuple[str, str, Any, str]
"""Kind and name of what is given, what of it is kept, and why the secret ``{name}`` must not be in
it, with what to do if it was meant to be."""
_VARIABLES = (
    "variables are kept with the run; if it is meant to be there, put it together in the step that "
    "uses it, with ${{{{ {name} }}}}"
)
_LABELS = "labels are kept with the run; if it is meant to be there, leave it out"
_CALLBACKS = (
    "where callbacks go is kept with the run; if it is meant to be there, let secret_env name what "
    "signs them"
)
_BY_CHANCE = "if it is there by chance, the secret is too easy to guess: use another one"
_LONGER = f", of {SHORTEST_TELLING} characters at least"


def check_secrets_kept_out(options: RunOptions, workflow: Workflow) -> None:
    """``InvalidOptions`` names each place, and never the value. Who queues a run for workers may
    not know its secrets; then there is nothing to look for."""
    by_name = {name: options.vars[name] for name in workflow.secrets if name in options.vars}
    secrets = {**by_name, **options.secrets}
    if not secrets:
        return
    masks = Masks(secrets.values())
    wrong = [
        f"{kind} {masks.text(name)}: {_problem(value, why, secrets)}"
        for kind, name, value, why in _kept(options, workflow, by_name)
        if masks.is_in(value)
    ]
    if wrong:
        raise InvalidOptions(wrong)


def _kept(options: RunOptions, workflow: Workflow, by_name: Mapping[str, Any]) -> Iterator[Kept]:
    """``by_name`` are variables that stay out of the record by their names alone."""
    for name, value in options.vars.items():
        if name not in by_name:
            yield "variable", name, _new(name, value, workflow.vars), _VARIABLES
    for name, text in options.labels.items():
        yield "label", name, _new(name, text, workflow.labels), _LABELS
    for number, target in enumerate(options.callbacks, 1):
        yield f"callback {number}, its", "url", target.url, _CALLBACKS
        for name, text in target.headers.items():
            yield f"callback {number}, its", name, {name: text}, _CALLBACKS


def _new(name: str, value: Any, in_file: Mapping[str, Any]) -> Any:
    """What of it the file does not have."""
    if name not in in_file:
        return {name: value}
    return None if value == in_file[name] else value


def _problem(value: Any, why: str, secrets: Mapping[str, Any]) -> str:
    name = next(
        (name for name in secrets if Masks([secrets[name]]).is_in(value)), next(iter(secrets))
    )
    longer = _LONGER if is_too_short(str(secrets[name])) else ""
    why = why.format(name=name)
    return f"the value of the secret {name} is in it, and {why}; {_BY_CHANCE}{longer}"
