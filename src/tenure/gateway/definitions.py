"""What runs execute, shown to whoever may see it: credentials of callbacks are for workers."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.gateway.calls import Answer, Call
from tenure.gateway.problems import FORBIDDEN, NOT_FOUND, Refusal
from tenure.gateway.reaching import check_reaches
from tenure.gateway.roles import WORK
from tenure.model.errors import NotSupported, StoreIncompatible
from tenure.ports.definitions import Definitions
from tenure.runtime.definition import Definition, decode_definition
from tenure.wire.listings import NoQuery
from tenure.wire.output import StoredDefinition
from tenure.wire.workflow_text import shown_text


async def get_definition(call: Call[NoQuery, None]) -> Answer:
    store, run_id = call.parts.store, await check_reaches(call)
    if not isinstance(store, Definitions):
        raise NotSupported(f"{type(store).__name__} keeps no definitions")
    stored = await store.get_definition(run_id)
    if stored is None:
        raise Refusal(NOT_FOUND, f"run {run_id} was created without a definition")
    known = _understood(stored)
    if call.caller.role not in WORK:
        known = None if known is None else masked(known)
        if known is None:
            said = "it cannot be read here and may hold credentials: worker tokens see it"
            raise Refusal(FORBIDDEN, said)
        stored = known.encode()
    return Answer(value=_shown(run_id, stored, known))


def masked(definition: Definition) -> Definition | None:
    """``None`` for a workflow that nobody could read."""
    text = shown_text(definition.workflow)
    return None if text is None else replace(definition, workflow=text)


def restored(given: str | None, known: str | None) -> str | None:
    """``given``, with the text of ``known`` if it is that, as it was shown: nothing is lost to who
    retries a run by what he was not to see."""
    new, old = _understood(given), _understood(known)
    if new is None or old is None or new.workflow != shown_text(old.workflow):
        return given
    return replace(new, workflow=old.workflow).encode()


def _understood(stored: str | None) -> Definition | None:
    """``None`` for somebody else's."""
    try:
        return None if stored is None else decode_definition(stored)
    except StoreIncompatible:
        return None


def _shown(run_id: str, stored: str, known: Definition | None) -> StoredDefinition:
    return StoredDefinition(
        run_id=run_id,
        workflow=known.workflow if known else None,
        source=known.source if known else None,
        limit=known.limit if known else (),
        local=known.local if known else False,
        files=tuple(known.files) if known else (),
        stored=stored,
    )
