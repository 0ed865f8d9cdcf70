"""Running as another user, through sudo without a password (``sudo -n``).

Values of variables never stand in an argument, where every user of the machine could read them:
``--preserve-env`` names the variables, sudo takes their values from its own environment. The
sudoers rule must allow that, as ``ALL`` does; a rule for single commands needs the tag ``SETENV``.
``PATH`` and what else sudo guards (``secure_path``, ``env_delete``) stays under sudo's rules.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from tenure.model.errors import NotStarted

_ENTER_FIRST = 'cd -- "$1" && shift && exec "$@"'
_SIGNAL = 'kill -s "$1" -- "-$2"'


def becoming(
    user: str, argv: tuple[str, ...], env: Mapping[str, str], cwd: str | None
) -> tuple[str, ...]:
    """``argv`` as that user, who also enters the working directory: it may be closed to us."""
    odd = [name for name in env if "," in name]
    if odd:
        raise NotStarted(f"become: sudo cannot keep a variable named {odd[0]!r}")
    home = () if "HOME" in env else ("-H",)
    keep = (f"--preserve-env={','.join(env)}",) if env else ()
    enter = ("/bin/sh", "-c", _ENTER_FIRST, "sh", cwd) if cwd is not None else ()
    return ("sudo", "-n", *home, "-u", user, *keep, "--", *enter, *argv)


def signalling(user: str, group: int, number: int) -> tuple[str, ...]:
    """A command that signals that user's processes in a group: we may not do it ourselves."""
    name = signal.Signals(number).name.removeprefix("SIG")
    return ("sudo", "-n", "-u", user, "--", "/bin/sh", "-c", _SIGNAL, "sh", name, str(group))
