"""Starting a process on this machine, and saying clearly why it could not be started."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from tenure.model.errors import NotStarted
from tenure.ports.execution import Command
from tenure.transports.plumbing import Ends, lay_pipes

_OURS = b"TENURE_"


class Image(NamedTuple):
    """What becomes a process, as the system takes it."""

    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes | None


def image_of(command: Command) -> Image:
    """``NotStarted`` if no process can be given this."""
    if not command.argv:
        raise NotStarted("the command is empty: it names no program")
    return Image(
        [encoded(part, "an argument") for part in command.argv],
        environment(command.env),
        encoded(command.cwd, "the working directory") if command.cwd is not None else None,
    )


def environment(given: Mapping[str, str]) -> dict[bytes, bytes]:
    """This process's environment and what the command brings.

    Tenure's own settings (tokens, store URLs) are no business of the commands it starts: names
    that begin with ``TENURE_`` come from ``given`` only.
    """
    inherited = os.environb.items()
    env = {name: value for name, value in inherited if not name.startswith(_OURS)}
    for name, value in given.items():
        if not name or "=" in name:
            raise NotStarted(f"{name!r} cannot be the name of an environment variable")
        env[encoded(name, "the name of a variable")] = encoded(value, f"variable {name}")
    return env


def encoded(text: str, what: str) -> bytes:
    """As the system takes it. Never shows the text: it may be secret."""
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise NotStarted(f"{what} holds half a surrogate pair, which is no text") from error
    if b"\0" in data:
        raise NotStarted(f"{what} holds a NUL character, which no process can be given")
    return data


def spawn(image: Image, *, feed: bool) -> tuple[subprocess.Popen[bytes], Ends]:
    """Start it in a session of its own, so that its whole group can be signalled and no terminal
    of ours reaches it. ``NotStarted``: nothing runs and nothing stays open."""
    try:
        ours, theirs = lay_pipes(feed=feed)
    except OSError as error:
        raise NotStarted(why_not(error, image)) from error
    try:
        process = subprocess.Popen(  # noqa: S603 - starting what the workflow says is the purpose
            image.argv,
            stdin=subprocess.DEVNULL if theirs.stdin is None else theirs.stdin,
            stdout=theirs.stdout,
            stderr=theirs.stderr,
            env=image.env,
            cwd=image.cwd,
            start_new_session=True,
        )
    except BaseException as error:
        ours.close()
        if isinstance(error, OSError):
            raise NotStarted(why_not(error, image)) from error
        raise
    finally:
        theirs.close()
    return process, ours


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
