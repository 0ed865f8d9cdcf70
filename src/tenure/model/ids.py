"""Run ids: ULIDs that only ever grow, and the rule for ids given by a caller.

Written here rather than taken from a package because a run id must also grow when the wall
clock steps back, must be a pure function of its arguments, and is on the start-up path.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tenure.model.errors import InvalidRunId

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]
_RANDOM_BITS = 80
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,127}", re.ASCII)


def check_run_id(run_id: str) -> str:
    """Return ``run_id`` unchanged. ``InvalidRunId``."""
    if not _RUN_ID.fullmatch(run_id):
        shown = repr(run_id[:80])
        raise InvalidRunId(
            f"run_id {shown} is not allowed: use 8-128 characters, the first a letter or digit, "
            "then letters, digits, '.', '_', ':' or '-'"
        )
    return run_id


def encode_ulid(value: int) -> str:
    """The 128-bit value as 26 characters of Crockford's base 32."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


class RunIds:
    """Generates ULIDs, each greater than the one before, whatever the clock does."""

    def __init__(self, milliseconds: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._milliseconds = milliseconds
        self._random_bits = random_bits
        self._last = 0
        self._text = encode_ulid(0)

    def next(self) -> str:
        now = self._milliseconds()
        if now > self._last >> _RANDOM_BITS:
            self._last = now << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        else:
            self._last += 1
            pair = self._last & 1023
            if pair:  # no carry: the next one differs in its last two characters
                self._text = self._text[:-2] + _PAIRS[pair]
                return self._text
        self._text = encode_ulid(self._last)
        return self._text
