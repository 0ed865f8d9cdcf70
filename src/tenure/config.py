"""Settings, in rising precedence: ``tenure.toml``, environment ``TENURE_…``, flags.

The file in the working directory overrides the one in the user's config directory. Every value
remembers its source, for error messages. All problems are reported together; an unknown key is one,
since an ignored typing error would silently mean the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.errors import InvalidWorkflow, TenureError
from tenure.runtime.options import (
    LARGEST_BACKOFF,
    LEASE_RULES,
    LONGEST_ATTEMPT_S,
    LONGEST_DELAY_S,
    LONGEST_FLUSH_S,
    MOST_ATTEMPTS,
    MOST_CLAIMED,
    MOST_PRUNED_PER_S,
    MOST_TAKEOVERS,
    LeaseRule,
    hidden_for,
)
from tenure.wire.addresses import shown_address
from tenure.workflow.durations import parse_duration, show_duration
from tenure.workflow.spec import CallbackSpec
from tenure.workflow.wording import did_you_mean

DEFAULT = "default"
JSON_LOGS = "json"


class Settings(Struct, frozen=True, kw_only=True):
    """Durations are seconds, sizes bytes. ``docs/reference/settings.md`` is made from the
    docstrings below."""

    store: str = ""
    """Where runs are kept: a store URL."""
    broker: str = ""
    """A broker URL (`redis://…`) that tells workers of new runs; without one they poll."""
    lease_duration: float = 60.0
    """How long a run waits for a worker that vanished with its machine."""
    renew_interval: float = 20.0
    """How often a worker renews its leases, all of them in one statement."""
    visibility_timeout: float = 30.0
    """How long a broker hides a message that was handed out. Unless it is set, half of
    `lease_duration`, and at least 1.5 `renew_interval`."""
    poll_interval: float = 1.0
    """How often a worker looks for runs where no notification arrives."""
    reconcile_interval: float = 5.0
    """How often abandoned runs with `recovery: interrupt` are looked for."""
    control_interval: float = 0.5
    """How long a cancel request waits where no notification arrives."""
    claim_batch: int = 10
    """Runs that a worker claims in one statement, at most."""
    max_takeovers: int = 5
    """A run that loses its worker more often in a row, with no host finished in between, ends as
    interrupted."""
    drain_timeout: float = 30.0
    """How long a stopping worker lets its runs finish."""
    listen: str = "127.0.0.1:8080"
    """Address of the gateway: HOST:PORT."""
    gateway_rate: int = 500
    """Requests a second that one token may make; 0 means no limit."""
    gateway_run_tasks: int = 200_000
    """Tasks of one run that the gateway takes: hosts of all steps, with the items of loops."""
    log_format: str = "plain"
    """`plain` or `json`: one JSON object per line on stderr."""
    callbacks: tuple[CallbackSpec, ...] = ()
    """Callback targets for every run: `[[callbacks]]` tables in the file."""
    hooks: dict[str, tuple[str, ...]] = {}
    """Which origins each secret signs callbacks for: `[hooks.NAME]` tables with `origins` for
    `TENURE_HOOK_NAME`; in the environment `NAME=ORIGIN`, separated by spaces."""
    callback_attempts: int = 8
    """Attempts in all, before a callback becomes a dead letter."""
    callback_delay: float = 5.0
    """Pause before the second attempt."""
    callback_backoff: float = 4.0
    """Each further pause is this many times the last."""
    callback_max_delay: float = 3600.0
    """The longest pause."""
    callback_timeout: float = 15.0
    """Time for one attempt, connecting included."""
    callback_allow_private: bool = False
    """Whether callback URLs of workflows and runs may reach loopback, link-local and private
    addresses."""
    callback_flush: float = 5.0
    """How long a finishing `run` waits for its callbacks; the rest stays in the outbox."""
    progress_interval: float = 0.0
    """Progress of running hosts within this time is written together. A status is never merged
    away."""
    summary_bytes: int = 4096
    """Size of the tails of stdout and stderr in the record."""
    log_cap: int = 10 * 1024 * 1024
    """Stored output per task and stream; what exceeds it is dropped and counted."""
    task_groups: bool = True
    """Whether each local task gets its own control group, where the system allows it."""
    inherit_env: bool = False
    """Whether local tasks of `worker` and `up` inherit the whole environment of their worker, less
    `TENURE_…`. Unless they do, they get `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `LANG`, `LC_*`,
    `TZ`, `TMPDIR`, `SSL_CERT_*`, the proxy variables, and `pass_env`."""
    pass_env: tuple[str, ...] = ()
    """Further variables of the worker's environment that its tasks get: a list of names, which may
    end in `*`."""
    task_user: str = ""
    """The user as whom local tasks of `worker` and `up` run, where these run as root."""
    python_modules: tuple[str, ...] = ()
    """Modules whose functions `python.call` may call inside `worker` and `up`, with their
    submodules: a list of names."""
    retention: float = 0.0
    """How long a run is kept after its end; `0s` means for ever, else at least `1m`."""
    prune_rate: int = 100
    """Runs that one process removes in a second, at most."""
    sources: dict[str, str] = {}
    """Where each value that is not a default came from."""

    def source_of(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)


class InvalidSettings(TenureError, ValueError):
    """Invalid settings. ``problems``: all that were found. ``settings``: those that could be read,
    others at their defaults; ``unread``: the names of these, with their sources."""

    def __init__(
        self, problems: list[str], settings: Settings, unread: Mapping[str, str] = {}
    ) -> None:
        self.problems = tuple(problems)
        self.settings = settings
        self.unread = dict(unread)
        super().__init__("\n".join(problems))


FILE_NAME = "tenure.toml"
_MAX_FILE_BYTES = 64 * 1024


def setting_files(environ: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """The files with settings; later ones override earlier ones."""
    home = _user_folder(environ, "XDG_CONFIG_HOME", ".config")
    here = folder.absolute() / FILE_NAME
    return (here,) if home is None else (home / FILE_NAME, here)


def data_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder of the default store; ``None`` for a user without a home."""
    environ = os.environ if environ is None else environ
    return _user_folder(environ, "XDG_DATA_HOME", ".local/share")


def default_store(environ: Mapping[str, str], problems: list[str]) -> str:
    folder = data_folder(environ)
    if folder is None:
        problems.append(
            "there is no place for runs: neither HOME nor XDG_DATA_HOME is set; name a store, for "
            "example --store sqlite:///runs.db"
        )
        return ""
    return f"sqlite:///{quote(str(folder / 'runs.db'))}"


def _user_folder(environ: Mapping[str, str], variable: str, otherwise: str) -> Path | None:
    """Relative paths are ignored, as the XDG specification wants."""
    named = environ.get(variable, "")
    if os.path.isabs(named):
        return Path(named) / "tenure"
    home = environ.get("HOME", "")
    return Path(home) / otherwise / "tenure" if os.path.isabs(home) else None


def read_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return _toml(_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        problems.append(f"{path}: is not UTF-8 text: byte {error.start}")
    except RecursionError:
        problems.append(f"{path}: is nested too deeply")
    except ValueError as error:
        problems.append(f"{path}: {error}")
    return {}


def _toml(text: str) -> dict[str, Any]:
    import tomllib  # most users have no such file, and every command asks

    return tomllib.loads(text)


def _text(path: Path) -> str:
    with path.open("rb") as stream:
        data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError(f"is larger than {_MAX_FILE_BYTES} bytes")
    return data.decode()


# Each setting: the values it accepts, and how it is shown.


_SHORTEST_RETENTION = 60.0
_UNITS = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def _duration(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit: write "{value}s"')  # noqa: TRY004
    raise ValueError(f'must be a duration like "30s" or "2m", not {kind(value)}')


def _positive_duration(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise ValueError("must be more than zero")
    return seconds


def _up_to(most: float, read: Callable[[object], float]) -> Callable[[object], float]:
    def bounded(value: object) -> float:
        seconds = read(value)
        if seconds > most:
            raise ValueError(f"must be at most {show_duration(most)}")
        return seconds

    return bounded


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = value
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
            number = int(value)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"must be a whole number, not {kind(value)}")  # noqa: TRY004
        if not least <= number <= most:
            raise ValueError(f"must be from {least} to {most}")
        return number

    return read


def _factor(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int | float) or isinstance(number, bool) or not isfinite(number):
        raise ValueError(f"must be a number, not {kind(value)}")
    if not 1 <= number <= LARGEST_BACKOFF:
        raise ValueError(f"must be from 1 to {LARGEST_BACKOFF:g}")
    return float(number)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError(f"must be true or false, not {kind(value)}")


def _size(value: object) -> int:
    number = value
    if isinstance(value, str):
        digits = value.strip().rstrip("BKMGi ")
        unit = value.strip()[len(digits) :].strip()
        if not digits.isdecimal() or len(digits) > 18 or unit not in _UNITS:
            raise ValueError(f'{kind(value)} is not a size: write it like 4096 or "10MiB"')
        number = int(digits) * _UNITS[unit]
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f'must be a size like 4096 or "10MiB", not {kind(value)}')  # noqa: TRY004
    if not 0 <= number <= 1 << 40:
        raise ValueError("must be from 0 to 1024GiB")
    return number


def _retention(value: object) -> float:
    seconds = _duration(value)
    if 0 < seconds < _SHORTEST_RETENTION:
        raise ValueError("must be 0s, to keep runs for ever, or at least 1m: ends are still read")
    return seconds


def _url(value: object) -> str:
    if not isinstance(value, str) or ":" not in value:
        raise ValueError(f'must be a store URL like "sqlite:///runs.db", not {_no_url(value)}')
    return value


def _broker_url(value: object) -> str:
    if value == "":
        return ""
    if not isinstance(value, str) or ":" not in value:
        wanted = 'must be a broker URL like "redis://localhost:6379/0"'
        raise ValueError(f"{wanted}, not {_no_url(value)}")
    return value


def _no_url(value: object) -> str:
    """A value for a message, without a password: drivers also accept other forms than URLs."""
    return kind(shown_address(value) if isinstance(value, str) else value)


def _address(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not host or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise ValueError(f'must be HOST:PORT like "127.0.0.1:8080", not {kind(value)}')
    return f"{host}:{int(port)}"


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be {' or '.join(words)}, not {kind(value)}")
        return str(value)

    return read


def _targets(value: object) -> tuple[CallbackSpec, ...]:
    if isinstance(value, str):
        raise ValueError(f"are tables, [[callbacks]], and stand in {FILE_NAME}")  # noqa: TRY004
    from tenure.workflow.parse import read_targets  # imported only if needed

    return read_targets(value)


def _hooks(value: object) -> dict[str, tuple[str, ...]]:
    from tenure.workflow.callbacks import read_hooks  # imported only if needed

    if isinstance(value, str):
        pairs = [each.partition("=") for each in value.split()]
        return read_hooks({name: [to for key, _, to in pairs if key == name] for name, *_ in pairs})
    tables: dict[str, Any] = value if isinstance(value, dict) else {"": value}
    if not all(isinstance(each, dict) and each.keys() == {"origins"} for each in tables.values()):
        raise ValueError('are tables: [hooks.NAME] with origins = ["https://…"], and nothing else')
    return read_hooks({name: table["origins"] for name, table in tables.items()})


def _word(value: object) -> str:
    if not isinstance(value, str) or any(map(str.isspace, value)):
        raise ValueError(f"must be a name, not {kind(value)}")
    return value


def _names(value: object) -> tuple[str, ...]:
    """In a variable or flag separated by commas."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError(f'must be names like ["ONE", "TWO"], not {kind(value)}')
    return tuple(value)


def kind(value: object) -> str:
    """A wrong value as shown in messages."""
    if isinstance(value, str | int | float | bool):
        shown = repr(value)
        return shown if len(shown) <= 60 else f"{shown[:60]}…"
    return {"dict": "a table", "list": "a list"}.get(type(value).__name__, type(value).__name__)


READERS: dict[str, Callable[[object], Any]] = {
    "store": _url,
    "broker": _broker_url,
    "lease_duration": _positive_duration,
    "renew_interval": _positive_duration,
    "visibility_timeout": _positive_duration,
    "poll_interval": _positive_duration,
    "reconcile_interval": _positive_duration,
    "control_interval": _positive_duration,
    "claim_batch": _whole(1, MOST_CLAIMED),
    "max_takeovers": _whole(1, MOST_TAKEOVERS),
    "drain_timeout": _duration,
    "listen": _address,
    "gateway_rate": _whole(0, 1_000_000),
    "gateway_run_tasks": _whole(1, 10_000_000),
    "log_format": _one_of("plain", JSON_LOGS),
    "callbacks": _targets,
    "hooks": _hooks,
    "callback_attempts": _whole(1, MOST_ATTEMPTS),
    "callback_delay": _up_to(LONGEST_DELAY_S, _duration),
    "callback_backoff": _factor,
    "callback_max_delay": _up_to(LONGEST_DELAY_S, _duration),
    "callback_timeout": _up_to(LONGEST_ATTEMPT_S, _positive_duration),
    "callback_allow_private": _flag,
    "callback_flush": _up_to(LONGEST_FLUSH_S, _duration),
    "progress_interval": _duration,
    "summary_bytes": _size,
    "log_cap": _size,
    "task_groups": _flag,
    "inherit_env": _flag,
    "pass_env": _names,
    "task_user": _word,
    "python_modules": _names,
    "retention": _retention,
    "prune_rate": _whole(1, MOST_PRUNED_PER_S),
}


def shown_value(settings: Settings, name: str) -> str:
    """The value as written in a settings file."""
    value = getattr(settings, name)
    if isinstance(value, float) and READERS[name] is not _factor:
        return show_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and READERS[name] is _names:
        return ", ".join(value) or "none"
    if isinstance(value, tuple | dict):
        return f"{len(value)} in all" if value else "none"
    if value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# Reading them from all sources.

PREFIX = "TENURE_"


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Read the settings from all sources. ``flags`` that are ``None`` were not given. Raises
    ``InvalidSettings`` with all problems."""
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    unread: dict[str, str] = {}
    for name, value, source in _given_values(flags or {}, environ, folder or Path(), problems):
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
        problems += filter(None, (broken_rule(rule, settings) for rule in LEASE_RULES))
    if problems:
        raise InvalidSettings(problems, settings, unread)
    return settings


def _completed(settings: Settings) -> Settings:
    """Settings with the defaults that depend on others: a fixed ``visibility_timeout`` would be
    refused for many values of the lease, although the user never set it."""
    sources = settings.sources
    said = [name for name in ("lease_duration", "renew_interval") if name in sources]
    if "visibility_timeout" in sources or not said:
        return settings
    hidden = hidden_for(settings.lease_duration, settings.renew_interval)
    follows = {"visibility_timeout": f"follows from {', '.join(said)}"}
    return replace(settings, visibility_timeout=hidden, sources=sources | follows)


def _given_values(
    flags: Mapping[str, object], environ: Mapping[str, str], folder: Path, problems: list[str]
) -> Iterator[tuple[str, object, str]]:
    """All given values with their sources, in rising precedence."""
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


def broken_rule(rule: LeaseRule, settings: Settings) -> str | None:
    """The message for a broken rule, with the source of each value; ``None`` if it holds."""

    def shown(name: str) -> str:
        return f"{shown_value(settings, name)} ({settings.source_of(name)})"

    return None if rule.holds(settings) else rule.broken_by(shown)
