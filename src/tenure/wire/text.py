"""Bytes as text, though they end anywhere."""

from __future__ import annotations

_LONGEST_CHARACTER = 4


def readable(data: bytes) -> tuple[str, int]:
    """As text, and how many of the bytes that is: a character whose rest is still to come is left
    for the next time, unless nothing else is there."""
    for cut in range(1, min(_LONGEST_CHARACTER, len(data))):
        lead = data[-cut]
        if lead & 0xC0 == 0x80:  # the inside of a character
            continue
        length = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4
        if lead & 0xC0 == 0xC0 and cut < length:
            data = data[:-cut]
        break
    return data.decode("utf-8", "replace"), len(data)


def is_begun(data: bytes) -> bool:
    """Whether this is the beginning of one character and nothing else."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start == 0 and error.reason == "unexpected end of data"
    return False
