"""A copy of what a task prints, in files of its own, where a workflow asks for one."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from tenure.runtime.masking import MaskedStream, Masks

STREAMS = ("stdout", "stderr")
_ODD = re.compile(r"[^\w.@:+-]+")
_LONGEST_NAME = 200


def file_stem(*parts: object) -> str:
    """One name for a file, whatever the names it is made of: never a path, never too long."""
    stem = "-".join(_ODD.sub("_", str(part)) for part in parts)
    if len(stem.encode()) <= _LONGEST_NAME:
        return stem
    digest = sha256(stem.encode()).hexdigest()[:12]
    return stem.encode()[: _LONGEST_NAME - 13].decode(errors="ignore") + f"-{digest}"


class OutputFiles:
    """``STEM-stdout.log`` and ``STEM-stderr.log`` in a folder, both there from the beginning.

    A disk that fails later does not end the task: what it prints is in the log all the same, and
    ``problem`` says what the files lack. All writing is done beside the event loop; the lock keeps
    a cancelled write, which nobody waits for any more, from meeting a closed file.
    """

    def __init__(self, files: dict[str, BinaryIO], masks: Masks | None) -> None:
        self._files = files
        self._masked: dict[str, MaskedStream] = (
            {stream: masks.stream() for stream in files} if masks else {}
        )
        self._lock = threading.Lock()
        self.problem: str | None = None

    @classmethod
    async def open(cls, folder: str, stem: str, masks: Masks | None) -> OutputFiles:
        """``OSError``."""
        return cls(await asyncio.to_thread(_opened, Path(folder), stem), masks)

    async def write(self, stream: str, data: bytes) -> None:
        if stream in self._masked:
            data = self._masked[stream].feed(data)
        if data:
            await asyncio.to_thread(self._guarded, partial(_put, self._files[stream], data))

    async def close(self) -> None:
        """``write`` must not be called any more."""
        for stream in self._files:
            await asyncio.to_thread(self._guarded, partial(self._finish, stream))

    def _finish(self, stream: str) -> None:
        with self._files[stream] as file:
            if stream in self._masked:
                file.write(self._masked[stream].finish())

    def _guarded(self, act: Callable[[], object]) -> None:
        with self._lock:
            try:
                act()
            except OSError as error:
                self.problem = self.problem or (error.strerror or str(error))


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()


def _opened(folder: Path, stem: str) -> dict[str, BinaryIO]:
    folder.mkdir(parents=True, exist_ok=True)
    return {stream: (folder / f"{stem}-{stream}.log").open("ab") for stream in STREAMS}
