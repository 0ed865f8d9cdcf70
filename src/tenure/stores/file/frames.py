"""A record as one line: length, checksum, JSON, newline.

JSON has no raw newline inside, so a whole record is always the end of some line. That is what
lets a reader tell a write that was cut short (nothing whole follows: it never happened) from
damage (something whole follows: it was acknowledged, and something before it is lost). And a
person can read the file.
"""

from __future__ import annotations

import re
from zlib import crc32

HEADER_SIZE = 18
MAX_PAYLOAD = 0xFFFF_FFFF
_HEADER = re.compile(rb"([0-9a-f]{8}) [0-9a-f]{8} (?=\{)")


def frame(payload: bytes) -> bytes:
    return b"%s%s\n" % (_header(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a whole line; ``None`` if anything about it is wrong."""
    if not line.endswith(b"\n"):
        return None
    payload = line[HEADER_SIZE:-1]
    return payload if line[:HEADER_SIZE] == _header(payload) else None


def ends_with_record(line: bytes) -> bool:
    """Whether a whole record ends this line, whatever stands before it: a lost newline glues a
    good record to a bad one."""
    return any(
        int(match[1], 16) == len(line) - match.end() - 1
        and unframe(line[match.start() :]) is not None
        for match in _HEADER.finditer(line)
    )


def _header(payload: bytes) -> bytes:
    return b"%08x %08x " % (len(payload), crc32(payload))
