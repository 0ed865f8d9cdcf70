"""The duties of a store, as pytest classes.

Subclass the contract of each protocol your store has, with one fixture, a fresh store::

    import pytest
    from tenure.testing.contracts import LeaseStoreContract, RunStateStoreContract

    class Mine:
        @pytest.fixture
        async def store(self, tmp_path):        # pytest-asyncio in auto mode
            store = await MyStore.open(tmp_path)
            yield store
            await store.close()

    class TestRuns(Mine, RunStateStoreContract): ...      # the only one every store needs
    class TestLeases(Mine, LeaseStoreContract): ...       # really waits for leases to expire

If your store takes a clock, use ``class Mine(ManualTime)`` and the fixture ``clock``, and no test
waits. See ``ContractHarness`` for the rest. A broker has one contract, ``BrokerContract``.
"""

from tenure.testing.contracts.batches import BatchUpdatesContract
from tenure.testing.contracts.broker import BrokerContract
from tenure.testing.contracts.claims import BeginningsContract
from tenure.testing.contracts.clocks import (
    MachineClockContract,
    OutboxMachineClockContract,
    StoreClockContract,
)
from tenure.testing.contracts.events import (
    ChangeFeedContract,
    EventLogContract,
    OwnershipEventsContract,
    RunVersionsContract,
    WakeupsContract,
)
from tenure.testing.contracts.harness import SUITE_VERSION, ContractHarness, FaultSweep, ManualTime
from tenure.testing.contracts.leases import KeptApartContract, LeaseStoreContract
from tenure.testing.contracts.logs import LogListingContract, LogSizesContract, LogStoreContract
from tenure.testing.contracts.outbox import OutboxBatchesContract, OutboxContract
from tenure.testing.contracts.retention import (
    OutboxRetentionContract,
    OutputRetentionContract,
    RetentionContract,
    RetentionCountsContract,
    UpkeepContract,
)
from tenure.testing.contracts.runs import (
    DefinitionsContract,
    OneRetryContract,
    RunStateStoreContract,
)
from tenure.testing.contracts.shared import (
    DurabilityContract,
    SharedLeasesContract,
    SharedStoreContract,
)
from tenure.testing.contracts.workers import (
    CensusContract,
    OwnerListingContract,
    TokenStoreContract,
    WorkerRegistryContract,
)

__all__ = [
    "SUITE_VERSION",
    "BatchUpdatesContract",
    "BeginningsContract",
    "BrokerContract",
    "CensusContract",
    "ChangeFeedContract",
    "ContractHarness",
    "DefinitionsContract",
    "DurabilityContract",
    "EventLogContract",
    "FaultSweep",
    "KeptApartContract",
    "LeaseStoreContract",
    "LogListingContract",
    "LogSizesContract",
    "LogStoreContract",
    "MachineClockContract",
    "ManualTime",
    "OneRetryContract",
    "OutboxBatchesContract",
    "OutboxContract",
    "OutboxMachineClockContract",
    "OutboxRetentionContract",
    "OutputRetentionContract",
    "OwnerListingContract",
    "OwnershipEventsContract",
    "RetentionContract",
    "RetentionCountsContract",
    "RunStateStoreContract",
    "RunVersionsContract",
    "SharedLeasesContract",
    "SharedStoreContract",
    "StoreClockContract",
    "TokenStoreContract",
    "UpkeepContract",
    "WakeupsContract",
    "WorkerRegistryContract",
]
