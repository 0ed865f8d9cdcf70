"""A request's own name, by which a repetition is known."""

from __future__ import annotations

from tenure.model.errors import InvalidOptions

_LONGEST = 255


def key_header(key: str | None) -> dict[str, str]:
    """``InvalidOptions`` for what cannot be sent in a header."""
    if key is None:
        return {}
    if not (0 < len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        raise InvalidOptions([f"key: must be 1 to {_LONGEST} printable characters of ASCII"])
    return {"idempotency-key": key}
