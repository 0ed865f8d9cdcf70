"""What can be switched off, and how much the world may do."""

from __future__ import annotations

from typing import NamedTuple

from tenure.model.decide import CHECKS, Check
from tenure.model.status import Recovery


class Rules(NamedTuple):
    """Every rule that closes a hole; as given here all are on."""

    checks: tuple[Check, ...] = CHECKS
    """The checks of ``apply`` and their order."""
    outside_end_raises_fence: bool = True
    reconcile_by_claim: bool = True
    """Off: expiry is concluded from a read, then written with that read's version as base."""
    claim_then_read: bool = True
    """Off: a claim answers with rows as its statement saw them when it began, and (as in a store
    of rows) the rows an owner writes are checked against what the owner was shown."""
    operator_any_base: bool = True
    owner_rebases: bool = True
    one_call_cancel: bool = True
    """Off: "end it", and if that is refused "ask its owner"."""
    claim_memory: bool = True
    create_checks_owner: bool = True
    """Off: a creation that carried a lease, sent again, is told "ok" whoever owns the run now."""
    wait_after_outage: bool = True
    noop_writes_nothing: bool = True
    trust_window: bool = True
    """Off: an owner runs tasks on whatever the store last said, until the store says lost."""
    trust_from_first_sending: bool = True
    """Off: a claim sent again after a lost answer trusts from the second sending on."""


class Bounds(NamedTuple):
    recovery: Recovery = Recovery.RESUME
    tasks: int = 1
    claims: int = 2
    """For each claimer."""
    faults: int = 1
    """Calls delayed, or answers held up."""
    silences: int = 1
    drains: int = 0
    cancels: int = 1
    outages: int = 0
    failovers: int = 0
