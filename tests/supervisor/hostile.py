"""Process trees that do not want to end, and a look at what is left of them.

Everything here ends by itself within half a minute and starts at most a few hundred processes,
whatever becomes of the test.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tenure.ports.transport import Command
from tenure.transports.supervisor.census import everybody

UP = b"up\n"
GRACE = 0.5

_PYTHON = f"{sys.executable} -I -S -c"
_RELAY = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + 20
runners = 0
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    os.setsid()
    runners += 1
    if runners == 20:
        os.write(1, b"up\\n")
"""
_HEADLESS = """
import ctypes, os, signal, threading, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(25,)).start()
os.write(1, b"up\\n")
ctypes.CDLL(None).pthread_exit(0)
"""
_DISGUISED = """
import ctypes, os, time
with open("/proc/self/stat") as file:
    fields = file.read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
os.write(1, b"up\\n")
time.sleep(25)
"""

TREES = {
    "setsid": "setsid sleep 25 & echo up; wait",
    "deaf": "trap '' TERM; sleep 25 & setsid sleep 25 & echo up; wait; sleep 25",
    "double fork": """
        ( (setsid sh -c 'sleep 0.05; echo up; exec sleep 25' &) & ) & sleep 25""",
    "deaf daemon": """
        (setsid sh -c 'trap "" TERM; sleep 0.05; echo up; sleep 25; sleep 25' &) & sleep 25""",
    "no environment": """
        env -i setsid sh -c '(/bin/sleep 25 &); echo up; exec /bin/sleep 25' & sleep 25""",
    "stopped": """
        sh -c 'kill -STOP $$; sleep 25' & setsid sh -c 'kill -STOP $$; sleep 25' &
        echo up; wait""",
    "pipe held open": """
        (setsid sleep 25 &); (setsid sh -c 'sleep 0.05; echo up; exec sleep 25' 2>&1 &)
        exec sleep 25""",
    "many": """
        grow() { [ "$1" -gt 0 ] || exec sleep 25; (grow $(($1 - 1))) & (grow $(($1 - 1))) & wait; }
        grow 5 & echo up; wait""",
    "bomb": """
        bomb() { trap '' TERM; [ "$1" -gt 0 ] || exec sleep 25
                 (bomb $(($1 - 1))) & (bomb $(($1 - 1))) & sleep 0.01; }
        echo up; bomb 6; wait; sleep 25""",
    "relay": f"{_PYTHON} '{_RELAY}' & sleep 25",
    "relays": "".join(f"{_PYTHON} '{_RELAY}' & " for _ in range(6)) + "sleep 25",
    "headless": f"{_PYTHON} '{_HEADLESS}' & sleep 25",
    "disguised": f"(setsid {_PYTHON} '{_DISGUISED}' &) & sleep 25",
}


def tree(name: str, run_id: str, folder: Path, grace: float = GRACE) -> Command:
    """Everything in it works in ``folder``, by which it is found even without its environment."""
    return Command(
        argv=("/bin/sh", "-c", TREES[name]),
        env={"TENURE_RUN_ID": run_id, "TENURE_TASK_ID": f"{run_id}:0:here:1"},
        cwd=str(folder),
        grace=grace,
    )


def left_of(run_id: str, folder: Path) -> set[int]:
    """The living processes of a run: those that say so, and those that work in its folder."""
    mark = f"TENURE_RUN_ID={run_id}".encode()
    return {
        process.pid
        for process in everybody().values()
        if process.alive and (mark in _environment(process.pid) or _works_in(process.pid, folder))
    }


async def nothing_left(run_id: str, folder: Path, within: float) -> None:
    """``TimeoutError`` names what is."""
    left: set[int] = set()
    try:
        async with asyncio.timeout(within):
            while left := left_of(run_id, folder):
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise TimeoutError(f"{left} still live") from error


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False
