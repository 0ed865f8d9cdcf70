"""What Tenure needs from the operating system: clocks, process identity and unique ids."""

from __future__ import annotations

import gc
import os
import platform
import re
import secrets
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tenure.model.ids import RunIds, check_run_id
from tenure.ports.environment import BootTime
from tenure.ports.leases import Presence

# CLOCK_BOOTTIME counts suspended time too. macOS has no such name; its CLOCK_MONOTONIC does.
_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SET_DUMPABLE = 4
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_OWNER_ID = re.compile(r"([^/]+)/([^/]+)/(\d+)/(\d{1,10})/(\d+)/[0-9a-f]+(?:@.+)?", re.ASCII)


class SystemClock:
    """This machine's clocks."""

    def __init__(self) -> None:
        self._boot_id = boot_id()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def boot_time(self) -> BootTime:
        return BootTime(self._boot_id, _boot_nanoseconds())


def settle_down() -> None:
    """Tune garbage collection for a long-lived process: freeze what is loaded, and collect less
    often, since runs leave no reference cycles (a test checks that). Python's defaults cost a
    seventh of the CPU. Not for use as a library."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def hide_memory() -> None:
    """For a process of our own that holds secrets: its memory, its environment and its open files
    are no longer for other processes of its user to read, its tasks among them. Nor are there core
    files and debuggers: a library leaves this to its application. Arguments stay readable."""
    if sys.platform != "linux":
        return
    import ctypes  # not for those that only read

    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


class Account(NamedTuple):
    """A user of this machine, as processes are started for it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    name: str
    shell: str

    @classmethod
    def named(cls, name: str) -> Account:
        """``KeyError``."""
        import pwd  # few need it

        entry = pwd.getpwnam(name)
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        home = entry.pw_dir if os.path.isdir(entry.pw_dir) else "/"
        return cls(entry.pw_uid, entry.pw_gid, groups, home, name, entry.pw_shell)

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def _boot_nanoseconds() -> int:
    return time.clock_gettime_ns(_BOOT_CLOCK)


def boot_id() -> str:
    """The id of this boot of this machine."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        booted_at = time.time() - _boot_nanoseconds() / 1e9
        return f"{platform.node()}-{round(booted_at / 60)}"


def process_start(pid: int) -> str | None:
    """When a process began, in a form unique for its pid on this boot; ``None`` if it is gone.

    A zombie counts as gone: it only waits to be reaped.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name may hold spaces and parentheses; fields are counted behind the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _pid_namespace() -> str:
    """Containers may share host name and boot; their pids are valid only inside."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"


def new_owner_id(name: str | None = None) -> str:
    """Unique per process start: machine, boot, pid, process start time, random.

    ``name``: the application's name for this process, the same over all its starts.
    """
    pid = os.getpid()
    start = process_start(pid) or "0"
    unique = secrets.token_hex(4) + (f"@{name}" if name else "")
    return f"{platform.node()}/{boot_id()}/{_pid_namespace()}/{pid}/{start}/{unique}"


def presence(owner_id: str) -> Presence:
    """Whether that owner's process is alive; ``UNSEEN`` unless it is of this boot of this machine
    and pid namespace."""
    match = _OWNER_ID.fullmatch(owner_id)
    if match is None or process_start(os.getpid()) is None:
        return Presence.UNSEEN
    machine, boot, namespace, number, start = match.groups()
    if (machine, boot, namespace) != (platform.node(), boot_id(), _pid_namespace()):
        return Presence.UNSEEN
    pid = int(number)
    seen = process_start(pid)
    if seen == start:
        return Presence.ALIVE
    if seen is None and _hidden(pid):
        return Presence.UNSEEN
    return Presence.ENDING if _is_supervised(pid, start) else Presence.GONE


def are_neighbours(owner_id: str, other_id: str) -> bool:
    """Whether these were processes of one boot of one machine, which could see each other."""
    one, other = _OWNER_ID.fullmatch(owner_id), _OWNER_ID.fullmatch(other_id)
    return one is not None and other is not None and one.group(1, 2, 3) == other.group(1, 2, 3)


def proven_dead(owner_id: str) -> bool:
    """Whether that owner was a process of this boot of this machine and is gone, with its tasks."""
    return presence(owner_id) is Presence.GONE


def supervisor_mark(pid: int | None = None, start: str | None = None) -> str:
    """The command-line argument that marks the supervisor of a process (default: this one)."""
    pid = os.getpid() if pid is None else pid
    return f"tenure-supervisor:{pid}:{start or process_start(pid) or 0}"


def _is_supervised(pid: int, start: str) -> bool:
    mark = supervisor_mark(pid, start).encode()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if mark in (process / "cmdline").read_bytes().split(b"\0"):
                    return True
    return False


def _hidden(pid: int) -> bool:
    """Whether it is a live process of another user that /proc hides (``hidepid``)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return False


def _fresh_run_ids() -> RunIds:
    return RunIds(lambda: time.time_ns() // 1_000_000, secrets.randbits)


_run_ids = _fresh_run_ids()
_run_ids_lock = threading.Lock()
_process_part = secrets.token_hex(8)
_counter = count()


def _begin_anew() -> None:
    """A forked child must not repeat its parent's ids, nor wait for a lock held by a thread that
    does not exist in it."""
    global _process_part, _run_ids, _run_ids_lock
    _process_part = secrets.token_hex(8)
    _run_ids = _fresh_run_ids()
    _run_ids_lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)


def new_run_id() -> str:
    """A ULID, greater than all earlier ones of this process."""
    with _run_ids_lock:
        return _run_ids.next()


def run_id_or_new(given: str | None) -> str:
    """The caller's own id, or a new one. ``InvalidRunId``, also for an empty text: a script whose
    variable is unset must not start a run that it cannot find again."""
    return new_run_id() if given is None else check_run_id(given)


def new_update_id() -> str:
    """Unique everywhere, cheap on the hot path: a random part per process and a counter."""
    return f"{_process_part}{next(_counter):x}"
