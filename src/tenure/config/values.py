"""What may be written for each setting, and how one is shown."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from tenure.config.files import FILE_NAME
from tenure.config.settings import JSON_LOGS, Settings
from tenure.runtime.callback_limits import (
    LARGEST_BACKOFF,
    LONGEST_ATTEMPT,
    LONGEST_DELAY,
    LONGEST_FLUSH,
    MOST_ATTEMPTS,
)
from tenure.runtime.lease_rules import MOST_CLAIMED, MOST_TAKEOVERS
from tenure.runtime.retention_limits import MOST_PER_SECOND
from tenure.wire.addresses import shown_address
from tenure.workflow.durations import parse_duration, show_duration
from tenure.workflow.spec import CallbackSpec

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
    """What drivers take besides URLs may hold a password, too."""
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
    from tenure.workflow.parse import read_targets  # the workflow's grammar, for the few in need

    return read_targets(value)


def kind(value: object) -> str:
    """How a message names what was written instead."""
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
    "log_format": _one_of("plain", JSON_LOGS),
    "callbacks": _targets,
    "callback_attempts": _whole(1, MOST_ATTEMPTS),
    "callback_delay": _up_to(LONGEST_DELAY, _duration),
    "callback_backoff": _factor,
    "callback_max_delay": _up_to(LONGEST_DELAY, _duration),
    "callback_timeout": _up_to(LONGEST_ATTEMPT, _positive_duration),
    "callback_allow_private": _flag,
    "callback_flush": _up_to(LONGEST_FLUSH, _duration),
    "progress_interval": _duration,
    "summary_bytes": _size,
    "log_cap": _size,
    "task_groups": _flag,
    "retention": _retention,
    "prune_rate": _whole(1, MOST_PER_SECOND),
}


def shown_value(settings: Settings, name: str) -> str:
    """As a person would write it."""
    value = getattr(settings, name)
    if isinstance(value, float) and READERS[name] is not _factor:
        return show_duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"{len(value)} in all" if value else "none"
    if value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
