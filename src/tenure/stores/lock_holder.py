"""Which process holds a file that others wait for, as far as the system tells, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")
_STOPPED = ("T", "t")


def who_holds(
    path: Path,
    seconds: float,
    writers: tuple[Path, int] | None = None,
    *,
    seen_first: frozenset[int] | None = None,
) -> str:
    """Nobody can take the lock away from whoever has it: a person must.

    ``writers``: the file and byte that only those lock who write, if that is not all of ``path``.
    ``seen_first``: who had it at the beginning of those seconds, if somebody looked. Who was not
    among them has not held it all the time, and who reads and goes on is not to blame.
    """
    held = f"another process has held {path} for {seconds:.0f} s:"
    writes = _holders(path) if writers is None else dict.fromkeys(_writers(*writers), True)
    if not writes:  # another system, another container, or the lock is free by now
        return f"{held} look for a stopped or hung process that has it open"
    unseen = writes.keys() - (seen_first or frozenset())
    ours = os.getpid()
    pid = min(
        writes, key=lambda pid: (pid == ours, _goes_on(pid), not writes[pid], pid in unseen, pid)
    )
    if pid == ours:
        return f"this process has held {path} for {seconds:.0f} s: see what else of it has it open"
    if pid in unseen:
        held = f"{path} has been locked for {seconds:.0f} s, now by"
    if not _goes_on(pid):
        return (
            f"{held} process {pid}, which is stopped; let it go on (kill -CONT {pid}) or end it "
            f"(kill -KILL {pid})"
        )
    if writes[pid] and (pid not in unseen or seen_first is None):
        return f"{held} process {pid}; if it hangs, end it (kill -KILL {pid})"
    what = "written" if writes[pid] else "read"
    return (
        f"{path} has been {what} by others all the time for {seconds:.0f} s, now by process "
        f"{', '.join(map(str, sorted(writes)))}; send the same call again"
    )


def holders_of(path: Path) -> frozenset[int]:
    """Other processes that have ``path`` locked, to read or to write it."""
    return frozenset(_holders(path))


def readers_of(path: Path, part: range) -> list[int]:
    """Processes, this one too, that keep those bytes of ``path`` from being changed."""
    locks = _locks_on(path)
    return sorted({int(one[4]) for one in locks if one[3] == "READ" and _is_on(one, part)})


def _holders(path: Path) -> dict[int, bool]:
    """And whether each of them writes. Readers too: who writes waits for them."""
    found: dict[int, bool] = {}
    for fields in _locks_on(path):
        found[int(fields[4])] = found.get(int(fields[4]), False) or fields[3] == "WRITE"
    return found


def _writers(path: Path, byte: int) -> Iterator[int]:
    for fields in _locks_on(path):
        if fields[3] == "WRITE" and _is_on(fields, range(byte, byte + 1)):
            yield int(fields[4])


def _is_on(fields: list[str], part: range) -> bool:
    """Only a lock of bytes is: one of the whole file (``flock``) is in nobody's way who locks
    bytes."""
    kind, first, last = fields[1], fields[6], fields[7]
    reaches = last == "EOF" or int(last) >= part.start
    return kind == "POSIX" and int(first) < part.stop and reaches


def _locks_on(path: Path) -> Iterator[list[str]]:
    """From ``1: POSIX ADVISORY WRITE 812 fe:01:4711 120 120``; who waits has a field more."""
    try:
        seen = path.stat()
        locks = _LOCKS.read_text()
    except OSError:
        return
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) == 8 and _is_known(fields[4]) and _is_file(seen, fields[5], fields[4]):
            yield fields


def _is_known(pid: str) -> bool:
    """To us: processes of other containers are 0 or -1 here."""
    return int(pid) > 0


def _is_file(seen: os.stat_result, named: str, pid: str) -> bool:
    """``fe:01:4711``: a number is one file's on its own device only. Some file systems (btrfs,
    overlays) go by another device here than where they are asked: then the process must have the
    very file open, or somebody who has nothing to do with it would be named."""
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    if named == f"{device}:{seen.st_ino}":
        return True
    return named.rpartition(":")[2] == str(seen.st_ino) and _has_open(pid, seen)


def _has_open(pid: str, seen: os.stat_result) -> bool:
    """As far as we may see."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), seen):
                return True
    return False


def _goes_on(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in _STOPPED
