"""Secret values from the environment, a file, or the keyboard; never from the command line, where
every user of the machine could read them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from tenure.cli.arguments import NOT_A_VARIABLE, is_variable
from tenure.runtime.masking import MASK, SHORTEST_TELLING, is_too_short
from tenure.workflow.wording import instead_of

_log = logging.getLogger("tenure.cli")
_PREFIX = "TENURE_SECRET_"
_OPTION = "--secret"
_MAX_FILE_BYTES = 1 << 20


def names_of(asked: Iterable[str]) -> set[str]:
    """The names in ``NAME`` or ``NAME=@file``; no value is read."""
    return {_asked(text)[0] for text in asked}


def gather(asked: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    """``asked`` are ``NAME`` or ``NAME=@file`` of the command line; ``declared`` are names of the
    workflow, taken from ``TENURE_SECRET_…`` if set."""
    check_declared(names_of(asked), declared)
    found = {name: _set(where) for name in declared if (where := _variable(name))}
    for text in asked:
        name, path = _asked(text)
        if path is not None:
            found[name] = _from_file(name, path)
        elif name not in found:
            found[name] = _from_environment(name) or _from_keyboard(name)
    for name, value in found.items():
        _warn_of_short(name, value)
    return found


def for_worker(asked: Sequence[str]) -> Mapping[str, str]:
    """Secrets of a worker, whose workflows are not known yet: those asked for, then
    ``TENURE_SECRET_…``."""
    return _WorkerSecrets(gather(asked, sorted(names_of(asked))))


class _WorkerSecrets(Mapping[str, str]):
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._looked_at: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name in self._given:
            return self._given[name]
        variable = _variable(name)
        if variable is None:
            raise KeyError(name)
        if name not in self._looked_at:
            self._looked_at.add(name)
            _warn_of_short(name, os.environ[variable])
        return os.environ[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def _warn_of_short(name: str, value: str) -> None:
    if is_too_short(value):
        _log.warning(
            "the secret %s has fewer than %d characters: wherever these stand, output and messages "
            "show %s, also in ordinary words; use a longer one",
            name,
            SHORTEST_TELLING,
            MASK,
        )


def check_declared(names: Iterable[str], declared: Sequence[str]) -> None:
    said = undeclared(names, declared)
    if said:
        raise click.BadParameter("; ".join(said), param_hint=_OPTION)


def undeclared(names: Iterable[str], declared: Sequence[str]) -> list[str]:
    """Mistakes for secrets that the workflow does not declare: in a retry they would be silently
    missing."""
    return [
        f"{name} is not among the secrets of this workflow; "
        + (instead_of(name, declared) if declared else f"declare it there: secrets: [{name}]")
        for name in sorted(names)
        if name not in declared
    ]


def check_not_typed(given: Iterable[str], declared: Iterable[str]) -> None:
    """Refuse ``NAME=…`` of ``--var`` for names that the workflow declares as secrets."""
    names = {text.partition("=")[0].removesuffix(":") for text in given}
    for name in declared:
        if name in names:
            raise _shown_to_all(name, "--var")


def _shown_to_all(name: str, option: str) -> click.BadParameter:
    return click.BadParameter(
        f"{name}=… would show the secret to every user of this machine. Put it in "
        f"{_PREFIX}{name.upper()}, or in a file: --secret {name}=@FILE.",
        param_hint=option,
    )


def _asked(text: str) -> tuple[str, Path | None]:
    """Name and file."""
    name, given, source = text.partition("=")
    if not is_variable(name):
        raise click.BadParameter(f"{name[:60]!r} {NOT_A_VARIABLE}.", param_hint=_OPTION)
    if given and not source.startswith("@"):
        raise _shown_to_all(name, _OPTION)
    return name, Path(source[1:]) if given else None


def _variable(name: str) -> str | None:
    variables = (_PREFIX + name, _PREFIX + name.upper())
    return next((each for each in variables if each in os.environ), None)


def _set(variable: str) -> str:
    return _not_empty(os.environ[variable], variable)


def _not_empty(value: str, where: str) -> str:
    """An empty secret is a mistake: it could not be masked, and would open nothing."""
    if not value:
        raise click.BadParameter(f"{where} is empty.", param_hint=_OPTION)
    return value


def _from_environment(name: str) -> str | None:
    return os.environ.get(name)


def _from_keyboard(name: str) -> str:
    if not sys.stdin.isatty():
        raise click.BadParameter(
            f"{name} is set neither as {_PREFIX}{name.upper()} nor as {name} in the environment, "
            f"and there is no terminal to ask at. A file works too: --secret {name}=@FILE.",
            param_hint=_OPTION,
        )
    value: str = click.prompt(f"Secret {name}", hide_input=True, err=True)
    return value


def _from_file(name: str, path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise click.BadParameter(
            f"{name}: {path} cannot be read: {error.strerror}.", param_hint=_OPTION
        ) from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{name}: {path} is not text.", param_hint=_OPTION) from error
    if len(data) > _MAX_FILE_BYTES:
        raise click.BadParameter(f"{name}: {path} is larger than 1 MiB.", param_hint=_OPTION)
    return _not_empty(text.removesuffix("\n").removesuffix("\r"), f"{name}: the file {path}")
