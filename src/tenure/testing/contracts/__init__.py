"""What a store must do, as pytest classes.

Subclass the contract of each protocol your store has, and give one fixture, a fresh store::

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

If your store takes a clock, nothing needs to wait: ``class Mine(ManualTime)``, and build it with
the fixture ``clock``. See ``ContractHarness`` for the rest; ``SUITE_VERSION`` is what you passed.

A broker has one contract, ``BrokerContract``, and a fixture of its own.
"""

from tenure.testing.contracts.batch import BatchUpdatesContract
from tenure.testing.contracts.beginnings import BeginningsContract
from tenure.testing.contracts.broker import BrokerContract
from tenure.testing.contracts.census import CensusContract
from tenure.testing.contracts.changes import ChangeFeedContract
from tenure.testing.contracts.definitions import DefinitionsContract, OneRetryContract
from tenure.testing.contracts.durability import DurabilityContract
from tenure.testing.contracts.events import (
    EventLogContract,
    OwnershipEventsContract,
    RunVersionsContract,
)
from tenure.testing.contracts.harness import SUITE_VERSION, ContractHarness, ManualTime
from tenure.testing.contracts.keeping import KeptApartContract
from tenure.testing.contracts.leases import LeaseStoreContract
from tenure.testing.contracts.log_listing import LogListingContract
from tenure.testing.contracts.log_sizes import LogSizesContract
from tenure.testing.contracts.logs import LogStoreContract
from tenure.testing.contracts.machine_clock import (
    MachineClockContract,
    OutboxMachineClockContract,
)
from tenure.testing.contracts.outbox import OutboxContract
from tenure.testing.contracts.outbox_batches import OutboxBatchesContract
from tenure.testing.contracts.owner_listing import OwnerListingContract
from tenure.testing.contracts.retention import RetentionContract, RetentionCountsContract
from tenure.testing.contracts.retention_outbox import OutboxRetentionContract
from tenure.testing.contracts.retention_output import OutputRetentionContract
from tenure.testing.contracts.runs import RunStateStoreContract
from tenure.testing.contracts.shared import SharedLeasesContract, SharedStoreContract
from tenure.testing.contracts.store_clock import StoreClockContract
from tenure.testing.contracts.sweep import FaultSweep
from tenure.testing.contracts.tokens import TokenStoreContract
from tenure.testing.contracts.upkeep import UpkeepContract
from tenure.testing.contracts.wakeups import WakeupsContract
from tenure.testing.contracts.workers import WorkerRegistryContract

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
