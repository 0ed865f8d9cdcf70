"""Starting a task's leader: quickly (``posix_spawn`` shares memory until the program is there, so
the size of this process does not matter), in a session of its own."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence

from tenure.transports.supervisor.frames import TO_ENTER, TO_EXECUTE, Spawn

_DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that reach everybody in a service or at a terminal. The supervisor's part comes after
its runner's end, so they do not mean the supervisor."""


class CannotStart(Exception):
    def __init__(self, number: int, what: int) -> None:
        super().__init__(number, what)
        self.number = number
        self.what = what


def turn_deaf() -> list[signal.Signals]:
    """The signals a task must hear again: those this process ignores and its runner did not."""
    unheard = [number for number in _DEAF if signal.getsignal(number) is not signal.SIG_IGN]
    for number in unheard:
        signal.signal(number, signal.SIG_IGN)
    return [*unheard, signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores the last two


def start(order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals]) -> int:
    """The number of the new process. ``fds``: its stdout, stderr and, if it is fed, stdin."""
    try:
        os.chdir(order.cwd)
    except OSError as error:
        raise CannotStart(error.errno or 0, TO_ENTER) from None
    try:
        return _execute(order, fds, hear)
    finally:
        os.chdir("/")


def _execute(order: Spawn, fds: Sequence[int], hear: Sequence[signal.Signals]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, fd, place) for fd, place in zip(fds, (1, 2, 0), strict=False)]
    number = errno.ENOENT
    for path in _candidates(order):
        try:
            return os.posix_spawn(
                path, order.argv, order.env, file_actions=actions, setsid=True, setsigdef=hear
            )
        except ValueError:  # a variable's name that Python does not pass on
            number = errno.EINVAL
        except OSError as error:
            # As a shell looks on: the first that is there and cannot be executed says why.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and number == errno.ENOENT:
                number = error.errno or 0
    raise CannotStart(number, TO_EXECUTE)


def _candidates(order: Spawn) -> list[bytes]:
    """Where the program may be, by the task's own ``PATH``. Only what is there: each try costs as
    much as a start."""
    program = order.argv[0]
    if b"/" in program:
        return [program]
    folders = order.env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [os.path.join(folder, program) for folder in folders]
    return [path for path in paths if os.access(path, os.F_OK)]
