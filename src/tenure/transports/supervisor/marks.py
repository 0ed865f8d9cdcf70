"""Marks that everything a task starts inherits, so that it can be told whose it is.

The first is a resource limit: the soft limit of file locks, which Linux has not enforced since 2004
and still hands down from process to process. Unlike a variable it survives an emptied environment,
an overwritten title and a change of user, and everybody may read it. The second is the variable
``TENURE_OUTPUT``, whose value is a task's own: for where a limit cannot be set, or was changed.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

from tenure.transports.supervisor.census import environment, read
from tenure.transports.supervisor.suspicion import RELEASED

_LOCKS = 10  # RLIMIT_LOCKS, for which Python has no name
_LINE = b"Max file locks"
_VARIABLE = b"TENURE_OUTPUT"

TOKEN_BITS = 38
_TASKS = 1 << 24
"""Tasks of one supervisor that can be told apart: more than live at once."""


class Marks:
    """The marks of one supervisor's tasks. ``token`` is the supervisor's own."""

    def __init__(self, token: int) -> None:
        self._token = token
        self._by_limit: dict[int, int] = {}
        self._by_value: dict[bytes, int] = {}

    def add(self, task: int, value: bytes) -> int:
        """The limit that marks ``task``. ``value`` is its variable's (``value_in``)."""
        limit = self._limit(task)
        self._by_limit[limit] = task
        if value:
            self._by_value[value] = task
        return limit

    def remove(self, task: int, value: bytes) -> None:
        self._by_limit.pop(self._limit(task), None)
        self._by_value.pop(value, None)

    def whose(self, pid: int) -> int | None:
        """The task a process was started by: one of these, or one that was (``RELEASED``)."""
        limit = _limit_on(pid)
        if limit // _TASKS == self._token:
            return self._by_limit.get(limit, RELEASED)
        return self._by_value.get(value_in(environment(pid))) if self._by_value else None

    def _limit(self, task: int) -> int:
        return self._token * _TASKS + task % _TASKS


def value_in(env: Mapping[bytes, bytes]) -> bytes:
    """The value that marks what has this environment."""
    return env.get(_VARIABLE, b"")


class Branding:
    """Puts the limit on this process while it starts something, and takes it off again."""

    def __init__(self) -> None:
        self._usual = resource.getrlimit(_LOCKS)

    def put(self, limit: int) -> None:
        try:
            resource.setrlimit(_LOCKS, (limit, self._usual[1]))
        except (OSError, ValueError):  # a lower hard limit: the variable has to do
            return

    def take_off(self) -> None:
        resource.setrlimit(_LOCKS, self._usual)


def _limit_on(pid: int) -> int:
    lines = read(b"/proc/%d/limits" % pid)
    at = lines.find(_LINE)
    if at < 0:
        return -1
    soft = lines[at + len(_LINE) :].split(None, 1)[0]
    return int(soft) if soft.isdigit() else -1
