"""Output on its way from a process to whoever keeps it."""

from __future__ import annotations

from tenure.actions.exports import PrintedExports
from tenure.ports.transport import Output

_TAIL = 4096
_LONGEST_MESSAGE = 300
CUT = b"...(truncated)"


class PassingOutput:
    """Hands everything on, and remembers what a result tells: exports, the last word of stderr."""

    def __init__(
        self,
        output: Output,
        *,
        exports: PrintedExports | None = None,
        limit: int | None = None,
        copy: Output | None = None,
    ) -> None:
        self._output = output
        self._copy = copy
        self._exports = exports
        self._limit = limit
        self._passed: dict[str, int] = {}
        self._tail = b""

    async def write(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._tail = data[-_TAIL:] if len(data) >= _TAIL else (self._tail + data)[-_TAIL:]
        elif self._exports is not None:
            self._exports.feed(data)
        if self._copy is not None:
            await self._copy.write(stream, data)
        if self._limit is not None:
            data = self._cut(stream, data, self._limit)
        if data:
            await self._output.write(stream, data)

    def _cut(self, stream: str, data: bytes, limit: int) -> bytes:
        passed = self._passed.get(stream, 0)
        if passed > limit:
            return b""
        self._passed[stream] = passed + len(data)
        room = limit - passed
        return data if len(data) <= room else data[:room] + CUT

    def last_error_line(self) -> str:
        """The last line of stderr that says something, fit to stand in a message."""
        for line in reversed(self._tail.splitlines()):
            text = "".join(
                each if each.isprintable() else " " for each in line.decode(errors="replace")
            ).strip()
            if text:
                return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
        return ""
