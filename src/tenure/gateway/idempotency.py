"""``Idempotency-Key``: the name of a request, by which its repetition is known. For submitted runs
and for the verbs alike."""

from __future__ import annotations

import hashlib
import hmac
from secrets import token_bytes
from typing import Any, NamedTuple

import msgspec

from tenure.gateway.calls import Call
from tenure.gateway.problems import MALFORMED, Refusal
from tenure.model.errors import InvalidOptions
from tenure.model.ids import check_run_id
from tenure.ports.store import TokenStore

_LONGEST_KEY = 255
_OWN_SECRET = token_bytes(32)
"""For a store that keeps no tokens and no secret: this process alone knows its repetitions."""
RESERVED = "key-"
"""How the ids of runs begin that a key names: no request may ask for such an id."""


class RequestKey(NamedTuple):
    """The id of a run that the request makes follows from its token and the key, the request's own
    name from its path and body too: so the store itself recognises a repetition, and a key that is
    used for something else, and no list of keys is kept anywhere. Both are keyed with a secret of
    the store, so that another token cannot take the id before."""

    run_id: str
    update_id: str


async def key_of(call: Call[Any, Any], wanted: str | None = None) -> RequestKey | None:
    """``wanted`` is the ``run_id`` that the request asks for. ``Refusal``, ``InvalidOptions``."""
    if wanted is not None:
        _check_id(call, wanted)
    given = call.headers.get("idempotency-key")
    if given is None:
        return None
    if not 0 < len(given) <= _LONGEST_KEY:
        raise Refusal(MALFORMED, f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    if wanted is not None:
        said = "the Idempotency-Key names this run already; give one of them"
        raise InvalidOptions([f"run_id: {said}"])
    store = call.parts.store
    secret = await store.token_secret() if isinstance(store, TokenStore) else _OWN_SECRET
    asked = msgspec.json.encode((call.path, call.body))
    named = (call.caller.token_id, given)
    whose = _keyed(secret, msgspec.json.encode(named))
    what = _keyed(secret, msgspec.json.encode((*named, hashlib.sha256(asked).hexdigest())))
    return RequestKey(f"{RESERVED}{whose[:32]}", what)


def _keyed(secret: bytes, text: bytes) -> str:
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def _check_id(call: Call[Any, Any], wanted: str) -> None:
    """Whether an id is taken is news of all queues: tokens that may not see all choose none."""
    check_run_id(wanted)
    if wanted.startswith(RESERVED):
        said = f"ids that begin with {RESERVED} are made from an Idempotency-Key; choose another"
        raise InvalidOptions([f"run_id: {said}"])
    if call.caller.queues is not None:
        said = "a token that is limited to queues gets its ids from the gateway; leave it out"
        raise InvalidOptions([f"run_id: {said}, and send an Idempotency-Key"])
