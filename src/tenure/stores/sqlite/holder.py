"""Which process holds a database file, as far as the system tells."""

from __future__ import annotations

from pathlib import Path

_LOCKS = Path("/proc/locks")
_WRITE_LOCK = 120
"""The byte of the ``-shm`` file that a writer locks (walformat: WAL_WRITE_LOCK)."""
_STOPPED = ("T", "t")


def holder_of(path: Path) -> tuple[int, bool] | None:
    """Its process id, and whether that is stopped. ``None`` where nobody can tell: another system,
    another container, or the lock is free by now."""
    try:
        index = Path(f"{path}-shm").stat().st_ino
        locks = _LOCKS.read_text()
    except OSError:
        return None
    for line in locks.splitlines():
        pid = _writer(line.split(), index)
        if pid is not None:
            return pid, _is_stopped(pid)
    return None


def _writer(fields: list[str], inode: int) -> int | None:
    """From ``1: POSIX ADVISORY WRITE 812 fe:01:4711 120 120``."""
    if len(fields) != 8 or fields[3] != "WRITE" or fields[5].rpartition(":")[2] != str(inode):
        return None
    first, last = fields[6], fields[7]
    covers = int(first) <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK)
    return int(fields[4]) if covers and int(fields[4]) > 0 else None


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in _STOPPED
