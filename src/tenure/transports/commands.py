"""Commands as local processes: the protocols of starters and started processes, the process image
of a command, and running as another user."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol

from tenure.model.errors import NotStarted
from tenure.ports.execution import Command, Output


class Started(Protocol):
    """A process and its descendants. The caller has to close it."""

    async def see_through(self, output: Output) -> int:
        """Pass its output on until it has ended; its exit code, negative for a signal.

        Raises ``NotStarted`` if it never ran, ``StillRunning`` if a descendant could not be ended,
        and other ``TransportError``s if it was ended from outside.
        """
        ...

    async def end(self, output: Output | None) -> None:
        """TERM, grace, KILL; returns when all its processes have ended. Further output goes to
        ``output``, if given. A cancellation ends the grace at once. Raises ``StillRunning``.
        """
        ...

    def kill(self) -> None:
        """Kill it without waiting, when this program is being torn down."""
        ...

    def close(self) -> None:
        """Close its streams."""
        ...


class Starter(Protocol):
    async def start(self, command: Command) -> Started:
        """``argv`` is started unchanged: with ``become`` it contains sudo already. Raises
        ``NotStarted``; then nothing runs and nothing stays open."""
        ...

    async def close(self) -> None: ...


_OURS = b"TENURE_"
_USUAL = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "SSL_CERT_*"),
    *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
)
"""What tasks get of an environment that is not theirs; a name may end in a star."""


class Image(NamedTuple):
    """The arguments of ``exec``: bytes without zero bytes."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes | None


def image_of(command: Command, pass_env: Sequence[str] | None = None) -> Image:
    """``NotStarted`` if no process can be given this. ``pass_env``: as for ``environment``."""
    if not command.argv:
        raise NotStarted("the command is empty: it names no program")
    return Image(
        [encoded(part, "an argument") for part in command.argv],
        environment(command.env, pass_env),
        encoded(command.cwd, "the working directory") if command.cwd is not None else None,
    )


def environment(
    given: Mapping[str, str], pass_env: Sequence[str] | None = None
) -> dict[bytes, bytes]:
    """This process's environment and what the command brings.

    Tenure's own settings (tokens, store URLs) are no business of the commands it starts: names
    that begin with ``TENURE_`` come from ``given`` only. With ``pass_env`` only the usual names and
    these are inherited.
    """
    env = {name: value for name, value in os.environb.items() if not name.startswith(_OURS)}
    if pass_env is not None:
        names, beginnings = _told_apart((*_USUAL, *pass_env))
        env = {
            name: value
            for name, value in env.items()
            if name in names or name.startswith(beginnings)
        }
    for name, value in given.items():
        if not name or "=" in name:
            raise NotStarted(f"{name!r} cannot be the name of an environment variable")
        env[encoded(name, "the name of a variable")] = encoded(value, f"variable {name}")
    return env


@cache
def _told_apart(patterns: tuple[str, ...]) -> tuple[frozenset[bytes], tuple[bytes, ...]]:
    """Names, and beginnings of names."""
    whole = frozenset(os.fsencode(each) for each in patterns if not each.endswith("*"))
    return whole, tuple(os.fsencode(each[:-1]) for each in patterns if each.endswith("*"))


def encoded(text: str, what: str) -> bytes:
    """As the system takes it. Never shows the text: it may be secret."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise NotStarted(f"{what} holds half a surrogate pair, which is no text") from error
    if b"\0" in data:
        raise NotStarted(f"{what} holds a NUL character, which no process can be given")
    return data


def why_not(error: OSError, image: Image) -> str:
    """In words. An error of the working directory names it as its file."""
    if error.errno == errno.E2BIG:
        return too_long(image)
    reason = os.strerror(error.errno) if error.errno else str(error)
    if image.cwd is not None and error.filename == image.cwd:
        return f"the working directory {os.fsdecode(image.cwd)} cannot be entered: {reason}"
    program = os.fsdecode(image.argv[0])
    if isinstance(error, FileNotFoundError):
        return f"{program} is not installed here, or the interpreter it names is not"
    if isinstance(error, PermissionError):
        return f"{program} may not be executed: {reason}"
    return f"{program} could not be started: {reason}"


def too_long(image: Image) -> str:
    env = image.env
    arguments = sum(map(len, image.argv))
    variables = sum(len(name) + len(value) for name, value in env.items())
    largest = max(env, key=lambda name: len(env[name]), default=b"")
    return (
        f"too much for one process: {arguments} bytes of arguments and {variables} bytes of "
        f"environment, most of it in {os.fsdecode(largest)} ({len(env.get(largest, b''))} bytes). "
        "Put a long script in shell.run or script.shell, which hand it over on standard input, "
        "and long values in files"
    )


# Running as another user, through sudo without a password (`sudo -n`).
# Values of variables never stand in an argument, where every user of the machine could read them:
# --preserve-env names the variables, sudo takes their values from its own environment. The sudoers
# rule must allow that, as ALL does; a rule for single commands needs the tag SETENV. PATH and what
# else sudo guards (secure_path, env_delete) stays under sudo's rules.

_ENTER_FIRST = 'cd -- "$1" && shift && exec "$@"'
_SIGNAL = 'kill -s "$1" -- "-$2"'


def becoming(
    user: str, argv: tuple[str, ...], env: Mapping[str, str], cwd: str | None
) -> tuple[str, ...]:
    """``argv`` as that user. It enters the working directory too, which may be closed to us."""
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
