"""Transports between an action and this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from tenure.ports.execution import Command, Endpoint, Exit, Output
from tenure.transports.commands import Starter
from tenure.transports.local import LocalTransport

Change = Callable[[Command], Command]
_AS_NOBODY = """
import os, sys
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Altered:
    """This machine, given other commands than those the action gave."""

    def __init__(self, change: Change, starter: Starter | None = None) -> None:
        self._change = change
        self._inner = LocalTransport(starter)
        self.commands: list[Command] = []

    async def run(self, host: Endpoint, command: Command, output: Output) -> Exit:
        self.commands.append(command)
        return await self._inner.run(host, self._change(command), output)

    async def close(self) -> None:
        await self._inner.close()


def as_it_is(command: Command) -> Command:
    return command


def cut_off(command: Command) -> Command:
    """The connection breaks in the middle of the input."""
    return replace(command, stdin=command.stdin[: len(command.stdin) // 2])


def by_nobody(command: Command) -> Command:
    """By a user without any rights, whoever runs the tests."""
    python = os.path.realpath(sys.executable)
    return replace(command, argv=(python, "-IS", "-c", _AS_NOBODY, *command.argv))


def by_shell(shell: str) -> Change:
    return lambda command: replace(command, argv=(shell, *command.argv[1:]))


def with_tools(folder: Path, names: str) -> Change:
    """On a machine that has these tools and no others."""
    folder.mkdir()
    for name in names.split():
        where = next(
            path
            for place in os.defpath.split(":")
            if place and (path := Path(place, name)).exists()
        )
        (folder / name).symlink_to(where)
    return lambda command: replace(command, env={**command.env, "PATH": str(folder)})


def instead_of(tool: str, folder: Path, script: str) -> Change:
    """On a machine where that tool does something else."""
    folder.mkdir()
    (folder / tool).write_text(f"#!/bin/sh\n{script}\n")
    (folder / tool).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return lambda command: replace(command, env={**command.env, "PATH": path})
