"""Process trees that do not want to end, and a look at what is left of them.

Everything here ends by itself within half a minute and starts at most a few hundred processes,
whatever becomes of the test.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from shutil import which

from tenure.ports.execution import Command
from tenure.transports.supervisor.processes import all_processes

UP = b"up\n"
GRACE = 0.5

PYTHON = f"{sys.executable} -I -S -c"
RELAY = """
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

FORGETFUL = """
import ctypes, os, resource
resource.setrlimit(10, (12345, resource.getrlimit(10)[1]))
ctypes.CDLL(None).prctl(29, 100000, 0, 0, 0)
"""
"""Loses what marks a task, but for the variable."""
_DAEMON = (
    FORGETFUL
    + """
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.execve("/bin/sh", ["sh", "-c", "trap \\"\\" TERM; echo up; sleep 25; sleep 25"], {})
"""
)
MARKLESS = f"{PYTHON} '{_DAEMON}'"
_RENAMED = (
    FORGETFUL
    + """
import sys
kept = {name: value for name, value in os.environ.items() if name not in sys.argv}
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.execve("/bin/sh", ["sh", "-c", "echo up; exec sleep 25"], kept)
"""
)
"""A daemon that keeps its environment, but for the variables it is given."""
_LIMITED_BOMB = """
import os, resource, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
most = 60
if os.getuid() == 0:
    os.setuid(20000 + os.getpid() % 40000)
else:
    for name in os.listdir("/proc"):
        try:
            if os.stat("/proc/" + name + "/task").st_uid == os.getuid():
                most += len(os.listdir("/proc/" + name + "/task"))
        except OSError:
            continue
resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
until, full = time.monotonic() + 20, False
while time.monotonic() < until:
    try:
        os.fork()
    except BlockingIOError:
        if not full:
            os.write(1, b"up\\n")
        full = True
        time.sleep(0.01)
"""
"""As many as it may have, and one more for each that is killed."""

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
    "supervisor stopped": "kill -STOP $PPID; echo up; sleep 25",
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
    "bomb under a limit": f"{PYTHON} '{_LIMITED_BOMB}' & sleep 25",
    "relay": f"{PYTHON} '{RELAY}' & sleep 25",
    "relays": "".join(f"{PYTHON} '{RELAY}' & " for _ in range(6)) + "sleep 25",
    "headless": f"{PYTHON} '{_HEADLESS}' & sleep 25",
    "disguised": f"(setsid {PYTHON} '{_DISGUISED}' &) & sleep 25",
    "no marks": f"{MARKLESS} & sleep 25",
    "task and run": f"{PYTHON} '{_RENAMED}' TENURE_OUTPUT & sleep 25",
    "run only": f"{PYTHON} '{_RENAMED}' TENURE_OUTPUT TENURE_TASK_ID & sleep 25",
    "relay without marks": f"env -i {PYTHON} '{FORGETFUL}{RELAY}' & sleep 25",
}
if os.geteuid() == 0 and which("su"):
    # Its limits are set anew, its environment and its folder are the user's.
    TREES["another user"] = """
        su - nobody -s /bin/sh -c 'setsid sh -c "echo up; exec sleep 25" &' 9<. & sleep 25"""


def tree(name: str, run_id: str, folder: Path, grace: float = GRACE) -> Command:
    """Everything in it works in ``folder`` or holds it open, and is found by that even without its
    environment."""
    return Command(
        argv=("/bin/sh", "-c", TREES[name]),
        env={"TENURE_RUN_ID": run_id, "TENURE_TASK_ID": f"{run_id}:0:here:1"},
        cwd=str(folder),
        grace=grace,
    )


def left_of(run_id: str, folder: Path) -> set[int]:
    """The living processes of a run: those that say so, and those that are at its folder."""
    mark = f"TENURE_RUN_ID={run_id}".encode()
    return {
        process.pid
        for process in all_processes().values()
        if process.alive and (mark in _environment(process.pid) or _is_at(process.pid, folder))
    }


async def nothing_left(run_id: str, folder: Path) -> None:
    while left_of(run_id, folder):
        await asyncio.sleep(0.02)


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _is_at(pid: int, folder: Path) -> bool:
    return any(_leads_to(f"/proc/{pid}/{link}") == str(folder) for link in ("cwd", "fd/9"))


def _leads_to(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
