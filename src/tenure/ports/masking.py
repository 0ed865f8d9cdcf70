"""Takes the secrets of a run out of what is shown.

Whoever shortens or tidies text masks it first: half a secret, or one whose tab became a blank, is
no longer recognised by those who mask afterwards.
"""

from __future__ import annotations

from typing import Protocol


class MaskingStream(Protocol):
    """One stream, chunk by chunk; what may be the beginning of a secret is held back."""

    def feed(self, data: bytes) -> bytes:
        """What is now known to be fit to be seen."""
        ...

    def finish(self) -> bytes:
        """The rest: nothing follows that could complete a secret."""
        ...


class Masking(Protocol):
    def text(self, text: str) -> str: ...

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """``cut``: it went on; what may be the beginning of a secret at its end is left out."""
        ...

    def stream(self) -> MaskingStream: ...


class NothingSecret:
    """``Masking`` where there are no secrets."""

    def text(self, text: str) -> str:
        return text

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        return data

    def stream(self) -> MaskingStream:
        return _Plain()


class _Plain:
    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


NOTHING_SECRET = NothingSecret()
