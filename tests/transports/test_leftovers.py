"""What killed programs left behind is cleared away; what lives, or is not ours, is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, Kept, sh

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, os, signal
from tenure.transports.local import LocalTransport
from tests.transports.keeping import HERE, Kept, sh

script = 'echo A=1 > "$TENURE_OUTPUT"; kill -KILL $PPID'
asyncio.run(LocalTransport().run(HERE, sh(script), Kept()))
"""


def age(folder: Path) -> Path:
    """As if it had been made long ago."""
    os.utime(folder, (1, 1))
    return folder


async def left(temporary: Path) -> set[Path]:
    """What is there when another program has begun its work and ended."""
    transport = LocalTransport()
    assert (await transport.run(HERE, sh("true"), Kept())).code == 0
    await transport.close()
    return set(temporary.glob("tenure-*"))


async def test_the_folder_of_a_killed_program_is_removed(temporary: Path) -> None:
    env = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run([sys.executable, "-c", PROGRAM], env=env)
    assert killed.returncode == -signal.SIGKILL
    [folder] = temporary.glob("tenure-*")
    assert [file.read_text() for file in folder.iterdir()] == ["A=1\n"]
    assert await left(temporary) == {folder}, "too young to be sure"
    age(folder)
    assert await left(temporary) == set()


async def test_the_folder_of_a_living_program_stays(temporary: Path) -> None:
    living = LocalTransport()
    await living.run(HERE, sh("true"), Kept())
    [folder] = temporary.glob("tenure-*")
    age(folder)
    assert await left(temporary) == {folder}
    await living.close()
    assert list(temporary.glob("tenure-*")) == []


async def test_what_does_not_look_like_ours_stays(temporary: Path) -> None:
    named, filled = temporary / "tenure-backup", temporary / "tenure-exports-mine"
    for kept in (named / "2024", filled / "notes.txt"):
        kept.parent.mkdir()
        kept.write_text("keep")
        age(kept.parent)
    linked = temporary / "tenure-exports-link"
    linked.symlink_to(named)
    assert await left(temporary) == {named, filled, linked}
    assert (named / "2024").exists()
    assert (filled / "notes.txt").exists()
