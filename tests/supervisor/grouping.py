"""Control groups of tasks, as a test sees them."""

from __future__ import annotations

import os
from pathlib import Path

from tenure.transports.supervisor.cgroups import own_group

HOME = own_group()


def allowed() -> bool:
    """Whether groups can be made here; elsewhere each test says what happens without."""
    return HOME is not None and os.access(HOME, os.W_OK)


def group_of(pid: int | str = "self") -> str:
    """As the kernel names it."""
    return group_in(Path(f"/proc/{pid}/cgroup").read_text())


def group_in(text: str) -> str:
    """In what ``/proc`` tells of a process."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::")), "")


def folder_of(group: str) -> Path:
    """Where a group below our own is."""
    return Path(f"{HOME}/{group.removeprefix(group_of())}")


def folders_of(supervisor: int) -> list[Path]:
    """All that it made for its tasks and for what it kills."""
    return [] if HOME is None else list(Path(HOME).glob(f"tenure-{supervisor}-*"))
