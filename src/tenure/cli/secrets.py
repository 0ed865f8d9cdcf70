"""Secret values: from the environment, a file, or the keyboard; never from the command line, where
every user of the machine could read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from tenure.cli.arguments import NOT_A_VARIABLE, is_variable

_PREFIX = "TENURE_SECRET_"
_OPTION = "--secret"
_LARGEST = 1 << 20


def names_of(asked: Iterable[str]) -> set[str]:
    """Of ``NAME`` or ``NAME=@file``."""
    return {_name(text) for text in asked}


def gather(asked: Iterable[str], declared: Iterable[str]) -> dict[str, str]:
    """``asked`` are ``NAME`` or ``NAME=@file`` of the command line; ``declared`` names of the
    workflow are taken from ``TENURE_SECRET_…`` if that is set."""
    found = {name: os.environ[where] for name in declared if (where := _variable(name))}
    for text in asked:
        name, (_, given, source) = _name(text), text.partition("=")
        if not given:
            found[name] = _from_environment(name) or _from_keyboard(name)
        elif source.startswith("@"):
            found[name] = _from_file(name, Path(source[1:]))
        else:
            raise _shown_to_all(name, _OPTION)
    return found


def check_not_typed(given: Iterable[str], declared: Iterable[str]) -> None:
    """``given`` are the ``NAME=…`` of ``--var``: what the workflow declares a secret is refused."""
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


def _name(text: str) -> str:
    name = text.partition("=")[0]
    if not is_variable(name):
        raise click.BadParameter(f"{name[:60]!r} {NOT_A_VARIABLE}.", param_hint=_OPTION)
    return name


def _variable(name: str) -> str | None:
    variables = (_PREFIX + name, _PREFIX + name.upper())
    return next((each for each in variables if each in os.environ), None)


def _from_environment(name: str) -> str | None:
    return os.environ.get(_variable(name) or name)


def _from_keyboard(name: str) -> str:
    if not sys.stdin.isatty():
        raise click.BadParameter(
            f"{name} is set neither as {_PREFIX}{name.upper()} nor as {name} in the environment, "
            f"and nobody can be asked here. A file works too: --secret {name}=@FILE.",
            param_hint=_OPTION,
        )
    value: str = click.prompt(f"Secret {name}", hide_input=True, err=True)
    return value


def _from_file(name: str, path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        text = data.decode()
    except OSError as error:
        raise click.BadParameter(
            f"{name}: {path} cannot be read: {error.strerror}.", param_hint=_OPTION
        ) from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{name}: {path} is not text.", param_hint=_OPTION) from error
    if len(data) > _LARGEST:
        raise click.BadParameter(f"{name}: {path} is larger than 1 MiB.", param_hint=_OPTION)
    return text.removesuffix("\n").removesuffix("\r")
