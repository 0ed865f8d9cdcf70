"""``RunStateStore``: the one contract every store must keep."""

from __future__ import annotations

from tenure.ports.store import RunStateStore
from tenure.testing.contracts.run_approval import RunApproval
from tenure.testing.contracts.run_checks import OrderOfChecks
from tenure.testing.contracts.run_creation import RunCreation
from tenure.testing.contracts.run_endings import RunEndings
from tenure.testing.contracts.run_few import FewAmongMany
from tenure.testing.contracts.run_listing import RunListing
from tenure.testing.contracts.run_operators import OperatorUpdates
from tenure.testing.contracts.run_records import WholeRecords
from tenure.testing.contracts.run_transitions import RunTransitions
from tenure.testing.contracts.run_updates import RunUpdates


class RunStateStoreContract(
    RunCreation,
    RunUpdates,
    OrderOfChecks,
    OperatorUpdates,
    RunApproval,
    RunTransitions,
    RunEndings,
    RunListing,
    FewAmongMany,
    WholeRecords,
):
    """Create, update, get, list: each part tells one side of it, in a file of its own."""

    async def test_store_says_whether_it_is_durable(self, store: RunStateStore) -> None:
        assert isinstance(store.durable, bool)
        assert isinstance(store, RunStateStore)
