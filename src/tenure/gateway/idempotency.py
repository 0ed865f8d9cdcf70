"""``Idempotency-Key``: the name of a request, by which its repetition is known. For submitted runs
and for the verbs alike."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from tenure.gateway.calls import Call
from tenure.gateway.problems import MALFORMED, Refusal
from tenure.model.errors import InvalidOptions
from tenure.model.ids import check_run_id

_LONGEST_KEY = 255


class RequestKey(NamedTuple):
    """The id of a run that the request makes follows from its caller and the key, the request's own
    name from its path and body too: so the store itself recognises a repetition, and a key that is
    used for something else, and no list of keys is kept anywhere."""

    run_id: str
    update_id: str


def key_of(call: Call[Any, Any], wanted: str | None = None) -> RequestKey | None:
    """``wanted`` is the ``run_id`` that the request asks for. ``Refusal``."""
    if wanted is not None:
        check_run_id(wanted)
    given = call.headers.get("idempotency-key")
    if given is None:
        return None
    if not 0 < len(given) <= _LONGEST_KEY:
        raise Refusal(MALFORMED, f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    if wanted is not None:
        said = "the Idempotency-Key names this run already; give one of them"
        raise InvalidOptions([f"run_id: {said}"])
    whose = hashlib.sha256(f"{call.caller.name}\0{given}".encode()).hexdigest()
    asked = msgspec.json.encode((call.path, call.body))
    what = hashlib.sha256(asked).hexdigest()
    return RequestKey(f"key-{whose[:32]}", whose[:32] + what[:32])
