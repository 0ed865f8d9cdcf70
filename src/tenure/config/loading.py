"""From all places to settings that can work, or to everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tenure.config.files import default_store, read_file, setting_files
from tenure.config.settings import InvalidSettings, Settings
from tenure.config.values import READERS, kind, shown_value
from tenure.model.errors import InvalidWorkflow
from tenure.runtime.lease_rules import RULES, Rule, hidden_for
from tenure.workflow.wording import did_you_mean

PREFIX = "TENURE_"


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """``InvalidSettings`` with everything that is wrong. ``flags`` that are ``None`` were not
    given."""
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name, value, source in _said(flags or {}, environ, folder or Path(), problems):
        try:
            given[name] = READERS[name](value)
        except InvalidWorkflow as error:
            problems += [str(replace(mistake, source=source)) for mistake in error.mistakes]
            unread[name] = source
        except ValueError as error:
            problems.append(f"{source}: {name}: {error}")
            unread[name] = source
        else:
            sources[name] = source
    if "store" not in given and "store" not in unread:
        given["store"] = default_store(environ, problems)
    settings = _completed(Settings(**given, sources=sources))
    if not problems:
        problems += filter(None, (broken_rule(rule, settings) for rule in RULES))
    if problems:
        raise InvalidSettings(problems, settings, unread)
    return settings


def _completed(settings: Settings) -> Settings:
    """With what follows from other settings. A number that fits one lease would not fit others: who
    sets only the lease would be refused for something he never said."""
    sources = settings.sources
    said = [name for name in ("lease_duration", "renew_interval") if name in sources]
    if "visibility_timeout" in sources or not said:
        return settings
    hidden = hidden_for(settings.lease_duration, settings.renew_interval)
    follows = {"visibility_timeout": f"follows from {', '.join(said)}"}
    return replace(settings, visibility_timeout=hidden, sources=sources | follows)


def _said(
    flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, problems: list[str]
) -> Iterator[tuple[str, object, str]]:
    """Everything that is said anywhere, what counts least first."""
    for path in setting_files(environ, folder):
        for name, value in read_file(path, problems).items():
            if name in READERS:
                yield name, value, str(path)
            else:
                hint = did_you_mean(name, READERS)
                problems.append(
                    f"{path}: there is no setting {kind(name)}" + (f"; {hint}" if hint else "")
                )
    for name in READERS:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            yield name, environ[variable], f"environment {variable}"
    for name, value in flags.items():
        if value is not None:
            yield name, value, f"--{name.replace('_', '-')}"


def broken_rule(rule: Rule, settings: Settings) -> str | None:
    """The refusal, with where each of its values comes from; ``None`` if it holds."""

    def shown(name: str) -> str:
        return f"{shown_value(settings, name)} ({settings.source_of(name)})"

    return None if rule.holds(settings) else rule.broken_by(shown)
