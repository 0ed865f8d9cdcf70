"""What a task prints, secrets masked: its tail for the record, all of it for the log, live for who
looks on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tenure.ports.recorder import OutputChunk
from tenure.runtime.logs import LogWriter
from tenure.runtime.masking import MaskedStream, Masks
from tenure.runtime.output_files import OutputFiles


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
    """Takes the output of one attempt. ``begin`` is called when there is any: most print nothing,
    and cost nothing then."""

    __slots__ = ("_begin", "printed")

    def __init__(self, begin: Callable[[], Printed]) -> None:
        self._begin = begin
        self.printed: Printed | None = None

    def write(self, stream: str, data: bytes) -> Coroutine[Any, Any, None]:
        return self._begun().write(stream, data)

    def copy_into(self, folder: str) -> Coroutine[Any, Any, OutputFiles]:
        return self._begun().copy_into(folder)

    def _begun(self) -> Printed:
        if self.printed is None:
            self.printed = self._begin()
        return self.printed


class Printed:
    """What one attempt prints. ``open_log`` is called when there is something to keep.

    Of a stream that may end in a secret the last bytes are held back until ``end`` says that
    nothing follows; ``close`` brings them to the log. ``stem`` says how files with a copy begin.
    """

    def __init__(
        self,
        summary_bytes: int,
        open_log: Callable[[], LogWriter] | None,
        show: Callable[[str, bytes], None] | None,
        masks: Masks | None,
        stem: Callable[[], str],
    ) -> None:
        self._masks = masks
        self._stem = stem
        self._copies: list[OutputFiles] = []
        self._masked: dict[str, MaskedStream] = {}
        self._unlogged: list[tuple[str, bytes]] = []
        self._limit = summary_bytes
        self._open_log = open_log
        self._log: LogWriter | None = None
        self._show = show
        self.stdout: Tail | None = None
        self.stderr: Tail | None = None

    async def write(self, stream: str, data: bytes) -> None:
        if self._masks:
            masked = self._masked.get(stream)
            if masked is None:
                masked = self._masked[stream] = self._masks.stream()
            data = masked.feed(data)
        if data:
            self._see(stream, data)
            await self._keep(stream, data)

    async def copy_into(self, folder: str) -> OutputFiles:
        copy = await OutputFiles.open(folder, self._stem(), self._masks)
        self._copies.append(copy)
        return copy

    def end(self) -> None:
        """Nothing more is printed."""
        for stream, masked in self._masked.items():
            rest = masked.finish()
            if rest:
                self._see(stream, rest)
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

    def _see(self, stream: str, data: bytes) -> None:
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
        return _cut(self.stdout) or _cut(self.stderr)


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
