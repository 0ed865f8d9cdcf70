"""Starting a process on this machine, and saying clearly why it could not be started."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenure.model.errors import NotStarted

_OURS = b"TENURE_"


class Spawned(NamedTuple):
    process: subprocess.Popen[bytes]
    stdin: int | None
    stdout: int
    stderr: int


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


def spawn(
    argv: Sequence[str], env: Mapping[bytes, bytes], cwd: str | None, *, feed: bool
) -> Spawned:
    """Start it in a session of its own, so that its whole group can be signalled and no terminal
    of ours reaches it. ``NotStarted``: nothing runs and nothing stays open."""
    arguments = [encoded(part, "an argument") for part in argv]
    folder = encoded(cwd, "the working directory") if cwd is not None else None
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(2):
            read_end, write_end = os.pipe()
            ours.append(read_end)
            theirs.append(write_end)
        if feed:
            read_end, write_end = os.pipe()
            ours.append(write_end)
            theirs.append(read_end)
        for fd in ours:
            os.set_blocking(fd, False)
        process = subprocess.Popen(  # noqa: S603 - starting what the workflow says is the purpose
            arguments,
            stdin=theirs[2] if feed else subprocess.DEVNULL,
            stdout=theirs[0],
            stderr=theirs[1],
            env=env,
            cwd=folder,
            start_new_session=True,
        )
    except BaseException as error:
        for fd in ours:
            os.close(fd)
        if isinstance(error, OSError):
            raise NotStarted(_why(error, arguments, env, folder)) from error
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return Spawned(process, ours[2] if feed else None, ours[0], ours[1])


def _why(
    error: OSError, argv: Sequence[bytes], env: Mapping[bytes, bytes], cwd: bytes | None
) -> str:
    if error.errno == errno.E2BIG:
        return _too_long(argv, env)
    reason = os.strerror(error.errno) if error.errno else str(error)
    if cwd is not None and error.filename == cwd:
        return f"the working directory {os.fsdecode(cwd)} cannot be entered: {reason}"
    program = os.fsdecode(argv[0])
    if isinstance(error, FileNotFoundError):
        return f"{program} is not installed here, or the interpreter it names is not"
    if isinstance(error, PermissionError):
        return f"{program} may not be executed: {reason}"
    return f"{program} could not be started: {reason}"


def _too_long(argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> str:
    arguments = sum(map(len, argv))
    variables = sum(len(name) + len(value) for name, value in env.items())
    largest = max(env, key=lambda name: len(env[name]), default=b"")
    return (
        f"too much for one process: {arguments} bytes of arguments and {variables} bytes of "
        f"environment, most of it in {os.fsdecode(largest)} ({len(env.get(largest, b''))} bytes). "
        "Put a long script in shell.run or script.shell, which hand it over on standard input, "
        "and long values in files"
    )
