"""JSON as YAML's parser reads it.

YAML means to contain JSON, libyaml does not quite: it stumbles over tabs between tokens, escaped
surrogate pairs, and characters that JSON allows in text and YAML does not. Lines stay as they are,
so that mistakes are shown where they were written.
"""

from __future__ import annotations

import re

_TEXT_OR_TAB = re.compile(r'"(?:[^"\\\n]|\\.)*"|\t')
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] == "{"


def readable(text: str) -> str:
    return _TEXT_OR_TAB.sub(lambda found: _readable(found[0]), text)


def _readable(piece: str) -> str:
    if piece == "\t":
        return " "
    piece = _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", piece)
    return _PAIR.sub(_joined, piece) if "\\u" in piece else piece


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"
