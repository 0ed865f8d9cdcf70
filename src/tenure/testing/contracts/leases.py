"""``LeaseStore``: one owner at a time, and nobody writes under an older fence."""

from __future__ import annotations

from tenure.ports.leases import LeaseStore
from tenure.testing.contracts.harness import LeasingStore
from tenure.testing.contracts.lease_batches import ClaimsInBatches
from tenure.testing.contracts.lease_claims import Claims
from tenure.testing.contracts.lease_discovery import RunnableDiscovery
from tenure.testing.contracts.lease_fairness import ClaimOrder
from tenure.testing.contracts.lease_reconcile import Reconciling
from tenure.testing.contracts.lease_records import WholeClaims
from tenure.testing.contracts.lease_renewal import Renewals
from tenure.testing.contracts.lease_takeover import Takeovers


class LeaseStoreContract(
    Claims,
    ClaimsInBatches,
    ClaimOrder,
    Renewals,
    Takeovers,
    Reconciling,
    RunnableDiscovery,
    WholeClaims,
):
    """Claim, renew, release, discover: each part in a file of its own."""

    async def test_store_is_a_lease_store(self, store: LeasingStore) -> None:
        assert isinstance(store, LeaseStore)
