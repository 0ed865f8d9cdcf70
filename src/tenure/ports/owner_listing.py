"""Who has runs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tenure.model.owning import Ownership


@runtime_checkable
class OwnerListing(Protocol):
    """Without it whoever looks for owners that are gone reads every run that is held."""

    async def list_owners(self) -> list[Ownership]:
        """All of them, in no order, as of one moment (``model.owning`` says what counts). Costs
        what is held, however many runs wait or have ended."""
        ...
