"""``Outbox``: callbacks that wait, go out in order, and are never lost."""

from __future__ import annotations

from tenure.ports.callbacks import Outbox
from tenure.testing.contracts.harness import CallingStore
from tenure.testing.contracts.outbox_claims import DeliveryClaims
from tenure.testing.contracts.outbox_dead_letters import DeadLetters
from tenure.testing.contracts.outbox_listing import DeliveryListing
from tenure.testing.contracts.outbox_origins import OriginClaims
from tenure.testing.contracts.outbox_settling import Settling


class OutboxContract(DeliveryClaims, OriginClaims, Settling, DeadLetters, DeliveryListing):
    """Claim, settle, dead letters, list: each part in a file of its own."""

    async def test_store_is_an_outbox(self, store: CallingStore) -> None:
        assert isinstance(store, Outbox)
