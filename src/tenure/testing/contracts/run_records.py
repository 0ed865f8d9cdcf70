"""What is read back is the whole record: no store forgets a field, in ``get_run`` or in a list."""

from __future__ import annotations

import pytest

from tenure.ports.store import RunStateStore
from tenure.testing.contracts.followed import FollowedRun
from tenure.testing.contracts.harness import ContractHarness
from tenure.testing.contracts.run_lives import LIVES, Life


class WholeRecords(ContractHarness):
    @pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
    async def test_record_and_summary_are_whole_all_along(
        self, store: RunStateStore, life: Life
    ) -> None:
        """At every version all fields are those that the model makes of the same writes; a summary
        is the same without steps, variables and callbacks."""
        await life(FollowedRun(store))
