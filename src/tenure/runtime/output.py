"""The output of a task, with secrets masked: its tail for the record, all of it (up to a cap) for
the log, chunks for recorders, and copies in files where a workflow asks for them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import Callable, Coroutine
from errno import EACCES
from functools import partial
from hashlib import sha256
from os import getgrouplist
from pathlib import Path
from pwd import getpwnam
from subprocess import PIPE, STDOUT, Popen
from typing import Any, BinaryIO, TypeAlias, cast

from tenure.aio import ENDLESS, until_answered
from tenure.model.errors import LeaseLost, TenureError
from tenure.model.update import Fencing
from tenure.ports.execution import OutputChunk
from tenure.ports.store import LogKey, LogStore
from tenure.runtime.masking import MaskedStream, Masks

STREAMS = ("stdout", "stderr")
_UNSAFE = re.compile(r"[^\w.@:+-]+")
_MAX_STEM_BYTES = 200


def file_stem(*parts: object) -> str:
    """A file name made of ``parts``: never a path, never too long."""
    stem = "-".join(_UNSAFE.sub("_", str(part)) for part in parts)
    if len(stem.encode()) <= _MAX_STEM_BYTES:
        return stem
    digest = sha256(stem.encode()).hexdigest()[:12]
    return stem.encode()[: _MAX_STEM_BYTES - 13].decode(errors="ignore") + f"-{digest}"


class OutputFiles:
    """A copy of the output in ``STEM-stdout.log`` and ``STEM-stderr.log``, created at the start.

    A later disk error does not end the task: the output is in the log too, and ``problem`` holds
    the error. Writes are made in threads; the lock keeps a cancelled write, which still runs, from
    meeting a closed file.
    """

    def __init__(self, files: dict[str, _File], masks: Masks | None) -> None:
        self._files = files
        self._masked: dict[str, MaskedStream] = (
            {stream: masks.stream() for stream in files} if masks else {}
        )
        self._lock = threading.Lock()
        self.problem: str | None = None

    @classmethod
    async def open(
        cls, folder: str, stem: str, masks: Masks | None, user: str | None = None
    ) -> OutputFiles:
        """``user``: the one that writes them, if not this process's. Raises ``OSError``."""
        return cls(await asyncio.to_thread(_opened, Path(folder), stem, user), masks)

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


def _put(file: _File, data: bytes) -> None:
    file.write(data)
    file.flush()


class _FileOfUser:
    """A file that a process of another user writes: what may be written is that user's to be
    allowed, and what is there stays that user's. Used like a ``BinaryIO``."""

    def __init__(self, path: Path, user: str) -> None:
        account = getpwnam(user)
        self._process = Popen(  # noqa: S603 - paths are arguments, not text of the script
            ("/bin/sh", "-c", _APPEND, "sh", str(path.parent), str(path)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            user=user,
            group=account.pw_gid,
            extra_groups=getgrouplist(user, account.pw_gid),
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
        self._stdin = cast("BinaryIO", self._process.stdin)
        answer = cast("BinaryIO", self._process.stdout)
        said = answer.readline().decode(errors="replace").strip()
        if said != _OPENED:
            self.__exit__()
            raise PermissionError(EACCES, f"{user} cannot write there: {said}")

    def write(self, data: bytes) -> int:
        return self._stdin.write(data)

    def flush(self) -> None:
        self._stdin.flush()

    def __enter__(self) -> _FileOfUser:
        return self

    def __exit__(self, *exit_details: object) -> None:
        with self._process:
            pass


_File: TypeAlias = "BinaryIO | _FileOfUser"
_OPENED = "opened"
_APPEND = f'umask 077; mkdir -p -- "$1" && exec >>"$2" && echo {_OPENED} >&2 && exec cat'


def _opened(folder: Path, stem: str, user: str | None) -> dict[str, _File]:
    names = {stream: folder / f"{stem}-{stream}.log" for stream in STREAMS}
    if user is not None:
        return {stream: _FileOfUser(path, user) for stream, path in names.items()}
    _make(folder)
    return {stream: open(path, "ab", opener=_private) for stream, path in names.items()}


def _make(folder: Path) -> None:
    """And what is missing above it, for their owner alone."""
    if not folder.parent.exists():
        _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_log = logging.getLogger("tenure.runtime")


class LogWriter:
    """Writes the streams of one attempt to the log, in order, under the owner's fence, up to
    ``cap`` bytes each. While the store is away the task's pipe blocks, so that memory stays
    bounded. If the store refuses output, the log ends there; task and tails are not affected."""

    def __init__(
        self,
        store: LogStore,
        run_id: str,
        fencing: Fencing,
        key_of: Callable[[str], LogKey],
        cap: int,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._fencing = fencing
        self._key_of = key_of
        self._cap = cap
        self._written: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._unacknowledged: dict[str, bytes] = {}
        """By stream: data that was sent and not acknowledged before the task was cancelled."""
        self._broken = False

    async def keep(self, stream: str, data: bytes) -> None:
        """Raises ``LeaseLost`` if the run has another owner."""
        written = self._written.get(stream, 0)
        kept = data[: max(self._cap - written, 0)]
        if len(kept) < len(data):
            self._dropped[stream] = self._dropped.get(stream, 0) + len(data) - len(kept)
        if kept:
            await self._append(stream, kept)

    @property
    def dropped(self) -> bool:
        return bool(self._dropped) or self._broken

    async def close(self) -> None:
        """Append a note where output was dropped."""
        for stream in tuple(self._unacknowledged):
            await self._send(stream)
        for stream, dropped in self._dropped.items():
            await self._append(stream, b"\n[tenure: %d more bytes were dropped here]\n" % dropped)

    async def _append(self, stream: str, data: bytes) -> None:
        if stream in self._unacknowledged:
            await self._send(stream)
        self._unacknowledged[stream] = data
        await self._send(stream)

    async def _send(self, stream: str) -> None:
        if self._broken:
            return
        offset, data, key = (
            self._written.get(stream, 0),
            self._unacknowledged[stream],
            self._key_of(stream),
        )
        try:
            self._written[stream] = await until_answered(
                lambda: self._store.append(self._run_id, self._fencing, key, offset, data),
                ENDLESS,
            )
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001  an integrator's store may raise anything
            self._give_up(error)
        del self._unacknowledged[stream]

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        _log.warning(
            "run %s: the log of a task ends here, its store cannot go on with it (%s: %s)",
            self._run_id,
            type(error).__name__,
            error,
            exc_info=None if isinstance(error, TenureError) else error,
        )


class Tail:
    """The last ``limit`` bytes of a stream, at no more than twice that in memory."""

    __slots__ = ("_held", "_limit", "total")

    def __init__(self, limit: int) -> None:
        self._held = bytearray()
        self._limit = limit
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._held += data[max(len(data) - self._limit, 0) :]
        excess = len(self._held) - self._limit
        if excess > self._limit:
            del self._held[:excess]

    @property
    def cut(self) -> bool:
        return self.total > self._limit

    def text(self) -> str | None:
        """Invalid UTF-8 shows as replacement characters; a character cut in two is left out."""
        if not self.total:
            return None
        held = bytes(self._held[max(len(self._held) - self._limit, 0) :])
        if self.cut:
            start = 0
            while start < min(4, len(held)) and held[start] & 0xC0 == 0x80:
                start += 1
            held = held[start:]
        return held.decode("utf-8", "replace")


class TaskOutput:
    """The output of one attempt; ``begin`` creates its sink on first use, since most tasks print
    nothing."""

    __slots__ = ("_begin", "printed")

    def __init__(self, begin: Callable[[], OutputSink]) -> None:
        self._begin = begin
        self.printed: OutputSink | None = None

    def write(self, stream: str, data: bytes) -> Coroutine[Any, Any, None]:
        return self._begun().write(stream, data)

    def copy_into(self, folder: str) -> Coroutine[Any, Any, OutputFiles]:
        return self._begun().copy_into(folder)

    def note_cut(self) -> None:
        self._begun().note_cut()

    def _begun(self) -> OutputSink:
        if self.printed is None:
            self.printed = self._begin()
        return self.printed


class OutputSink:
    """The sink for the output of one attempt. ``open_log`` is called when there is something to
    keep; ``stem`` returns the stem of files with a copy.

    The last bytes of a stream are held back while they may begin a secret, until ``end``; ``close``
    writes them to the log.
    """

    def __init__(
        self,
        summary_bytes: int,
        open_log: Callable[[], LogWriter] | None,
        show: Callable[[str, bytes], None] | None,
        masks: Masks | None,
        stem: Callable[[], str],
        copies_as: str | None = None,
    ) -> None:
        self._masks = masks
        self._stem = stem
        self._copies: list[OutputFiles] = []
        self._copies_as = copies_as
        self._masked: dict[str, MaskedStream] = {}
        self._unlogged: list[tuple[str, bytes]] = []
        self._limit = summary_bytes
        self._open_log = open_log
        self._log: LogWriter | None = None
        self._show = show
        self._cut = False
        self.stdout: Tail | None = None
        self.stderr: Tail | None = None

    def note_cut(self) -> None:
        """The action left out something of what was printed."""
        self._cut = True

    async def write(self, stream: str, data: bytes) -> None:
        if self._masks:
            masked = self._masked.get(stream)
            if masked is None:
                masked = self._masked[stream] = self._masks.stream()
            data = masked.feed(data)
        if data:
            self._show_part(stream, data)
            await self._keep(stream, data)

    async def copy_into(self, folder: str) -> OutputFiles:
        copy = await OutputFiles.open(folder, self._stem(), self._masks, self._copies_as)
        self._copies.append(copy)
        return copy

    def end(self) -> None:
        """Nothing more is printed."""
        for stream, masked in self._masked.items():
            rest = masked.finish()
            if rest:
                self._show_part(stream, rest)
                self._unlogged.append((stream, rest))

    async def close(self) -> None:
        self.end()
        for copy in self._copies:
            await copy.close()
        unlogged, self._unlogged = self._unlogged, []
        for stream, data in unlogged:
            await self._keep(stream, data)
        if self._log is not None:
            await self._log.close()

    def _show_part(self, stream: str, data: bytes) -> None:
        self._tail(stream).add(data)
        if self._show is not None:
            self._show(stream, data)

    async def _keep(self, stream: str, data: bytes) -> None:
        if self._open_log is not None:
            if self._log is None:
                self._log = self._open_log()
            await self._log.keep(stream, data)

    def _tail(self, stream: str) -> Tail:
        if stream == "stderr":
            self.stderr = self.stderr or Tail(self._limit)
            return self.stderr
        self.stdout = self.stdout or Tail(self._limit)
        return self.stdout

    @property
    def truncated(self) -> bool:
        """Something was left out: of the tails, of the log, or by the action itself."""
        dropped = self._log is not None and self._log.dropped
        return self._cut or dropped or _cut(self.stdout) or _cut(self.stderr)


def _cut(tail: Tail | None) -> bool:
    return tail is not None and tail.cut


def shown_to(
    show: Callable[[OutputChunk], None], run_id: str, index: int, step: str, host: str
) -> Callable[[str, bytes], None]:
    def tell(stream: str, data: bytes) -> None:
        show(
            OutputChunk(
                run_id=run_id, step_index=index, step=step, host=host, stream=stream, data=data
            )
        )

    return tell
