"""Output on its way from a process to whoever keeps it."""

from __future__ import annotations

from tenure.actions.exports import PrintedExports
from tenure.ports.masking import NOTHING_SECRET, Masking, MaskingStream
from tenure.ports.transport import Output

_TAIL = 4096
_LONGEST_MESSAGE = 300
CUT = b"...(truncated)"


class PassingOutput:
    """Hands everything on, and remembers what a result tells: exports, the last word of stderr.

    What is cut here is masked here: whoever masks all output later could not tell half a secret
    from other text. Exports are taken from what was printed.
    """

    def __init__(
        self,
        output: Output,
        *,
        exports: PrintedExports | None = None,
        limit: int | None = None,
        copy: Output | None = None,
        masks: Masking = NOTHING_SECRET,
    ) -> None:
        self._output = output
        self._copy = copy
        self._exports = exports
        self._limit = limit
        self._masks = masks
        self._masked: dict[str, MaskingStream] = {}
        self._passed: dict[str, int] = {}
        self._tail = b""

    async def write(self, stream: str, data: bytes) -> None:
        if stream == "stdout" and self._exports is not None:
            self._exports.feed(data)
        if self._copy is not None:
            await self._copy.write(stream, data)
        if stream == "stdout" and self._limit is None:
            await self._output.write(stream, data)
            return
        masked = self._masked.get(stream)
        if masked is None:
            masked = self._masked[stream] = self._masks.stream()
        shown = masked.feed(data)
        self._remember(stream, shown)
        await self._pass(stream, data if self._limit is None else self._cut(stream, shown))

    async def finish(self) -> None:
        """The process has ended; what was held back of its output comes out."""
        for stream, masked in self._masked.items():
            rest = masked.finish()
            self._remember(stream, rest)
            if self._limit is not None:
                await self._pass(stream, self._cut(stream, rest))

    async def _pass(self, stream: str, data: bytes) -> None:
        if data:
            await self._output.write(stream, data)

    def _remember(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._tail = data[-_TAIL:] if len(data) >= _TAIL else (self._tail + data)[-_TAIL:]

    def _cut(self, stream: str, data: bytes) -> bytes:
        limit, passed = self._limit or 0, self._passed.get(stream, 0)
        if passed > limit:
            return b""
        self._passed[stream] = passed + len(data)
        room = limit - passed
        return data if len(data) <= room else data[:room] + CUT

    def last_error_line(self) -> str:
        """The last line of stderr that says something, fit to stand in a message. Call ``finish``
        before."""
        for line in reversed(self._tail.splitlines()):
            text = "".join(
                each if each.isprintable() else " " for each in line.decode(errors="replace")
            ).strip()
            if text:
                return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
        return ""
