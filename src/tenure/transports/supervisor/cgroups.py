"""Control groups (cgroup v2) as files: where ours may be, what they are called, and how they go.

The groups of a supervisor are folders in its own group, its *home*. Their names hold its number and
its start, so that whoever comes later sees which belong to nobody any more.
"""

from __future__ import annotations

import os
from collections.abc import Container

from tenure.transports.supervisor.census import look_at, read

_PREFIX = "tenure-"


def own_group() -> str | None:
    """The directory of the control group this process is in."""
    lines = read(b"/proc/self/cgroup").split(b"\n")
    path = next((line[3:] for line in lines if line.startswith(b"0::")), b"..")
    if b".." in path:
        return None
    for line in read(b"/proc/self/mountinfo", 1 << 20).split(b"\n"):
        mount, _, kind = line.partition(b" - ")
        if kind.startswith(b"cgroup2 "):
            root, point = mount.split()[3:5]
            root = root.rstrip(b"/")
            if path == root or path.startswith(root + b"/"):
                return os.fsdecode(point + path[len(root) :]).rstrip("/")
    return None


def name_of(supervisor: int) -> str:
    process = look_at(supervisor)
    return f"{_PREFIX}{supervisor}-{process.start if process else 0}"


def sweep(home: str) -> None:
    """Remove the groups of supervisors that were killed before they could."""
    for name in _folders_in(home):
        maker = _maker(name)
        if maker is not None and not _lives(maker):
            clear(f"{home}/{name}")


def clear(folder: str) -> None:
    """Remove the groups of one supervisor, each as ``remove`` does, and what they were in."""
    for name in _folders_in(folder):
        remove(f"{folder}/{name}")
    remove(folder)


def remove(group: str) -> bool:
    """A group and what was made inside, from the inside out. Whether nothing is there any more.

    All of it stays while somebody is anywhere in it: an empty group may be one he made and means to
    use. So do those of a supervisor that lives, in which nobody is between two tasks.
    """
    try:
        inside = [folder for folder, _, _ in os.walk(group, topdown=False)]
        makers = (_maker(os.path.basename(folder)) for folder in inside if folder != group)
        if inhabited(group) or any(maker is not None and _lives(maker) for maker in makers):
            return False
    except OSError:  # nothing left to look with
        return False
    for folder in inside:
        try:
            os.rmdir(folder)
        except OSError:
            continue
    return not os.path.exists(group)


def _folders_in(folder: str) -> list[str]:
    return next(os.walk(folder), ("", [], []))[1]


def _maker(name: str) -> tuple[int, int] | None:
    """Number and start of the supervisor that called a folder so, if one did."""
    pid, _, start = name.removeprefix(_PREFIX).partition("-")
    start = start.partition("-")[0]
    if name.startswith(_PREFIX) and pid.isdecimal() and start.isdecimal():
        return int(pid), int(start)
    return None


def _lives(maker: tuple[int, int]) -> bool:
    pid, start = maker
    process = look_at(pid)
    return process is not None and process.start == start


def write(path: str, data: bytes) -> bool:
    """Whether the system took it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, data) > 0
    except OSError:
        return False
    finally:
        os.close(fd)


def freeze(group: str) -> None:
    """Whoever is in it, or is born in it from now on, stands still; a KILL still reaches him."""
    write(f"{group}/cgroup.freeze", b"1")


def thaw(group: str) -> None:
    write(f"{group}/cgroup.freeze", b"0")


def inhabited(group: str) -> bool:
    """Whether somebody is in it, or in a group that was made inside."""
    return b"populated 1" in read(os.fsencode(f"{group}/cgroup.events"))


def processes_in(group: str, known: Container[int]) -> list[int]:
    """Of a threaded group, whose processes are not listed: threads that are no ``known`` process
    are asked to which one they belong."""
    threads = numbers_in(group, "cgroup.threads")
    return list({each if each in known else _process_of(each) for each in threads})


def _process_of(thread: int) -> int:
    """Zero if it is gone."""
    _, _, said = read(b"/proc/%d/status" % thread).partition(b"\nTgid:")
    return int(said.split(None, 1)[0]) if said else 0


def numbers_in(group: str, name: str) -> list[int]:
    """Of a list of processes or threads, also of groups that were made inside."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        found += map(int, _all_of(f"{folder}/{name}").split())
    return found


def _all_of(path: str) -> bytes:
    """The kernel hands out long lists a page at a time. Nothing, if it is gone or not for us."""
    listed = b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return listed
    try:
        while more := os.read(fd, 1 << 16):
            listed += more
    except OSError:
        return b""
    finally:
        os.close(fd)
    return listed
