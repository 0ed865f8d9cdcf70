"""Callbacks that wait to be sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.query import Page
from tenure.model.status import DeliveryState
from tenure.wire.callbacks import CallbackPayload


@runtime_checkable
class Outbox(Protocol):
    """Without it callbacks are best effort from memory.

    Deliveries come into being with the update that caused them, in the same atomic write.
    A relay claims some, sends them, and settles each; any number of relays may do so at once.
    Nothing here changes a run's version, status, message, error or times.
    """

    async def claim_deliveries(
        self,
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[Delivery]:
        """Hold up to ``limit`` due deliveries under ``token`` for ``seconds``, soonest due first.

        Of each run and target only the lowest unsettled (version, seq) is eligible, and only
        while no live claim holds it: one in flight per run and target, in order. A new one is due
        at once, one that failed after its delay, measured as leases are.

        At most ``per_origin`` of one origin (``model.outbox.origin_of``), and none of
        ``except_origins``: a relay whose hands are full with the callbacks of one receiver asks
        for everybody else's. However many wait there, the others are found as quickly.
        ``only`` these, by their ids, if it is given: of them too what is due and eligible.

        The same ``token`` again returns what is still held under it, renewed, and claims no more.
        """
        ...

    async def settle_delivery(self, delivery_id: str, token: str, outcome: Outcome) -> Delivery:
        """Record how the attempt under ``token`` ended. ``DeliveryNotFound``, ``DeliveryLost``.

        ``GiveUp`` makes a dead letter and shows it as the run's ``callback_error``; delivering the
        newest dead letter clears it (an older dead letter then shows instead). ``PutBack`` ends the
        claim and counts no attempt. Settling the same attempt again changes nothing.
        """
        ...

    async def list_deliveries(
        self,
        *,
        state: DeliveryState | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Newest first, in pages."""
        ...

    async def get_delivery(self, delivery_id: str) -> Delivery:
        """``DeliveryNotFound``."""
        ...

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        """Send a settled delivery again: same id, ``redelivery`` set, attempts from zero.

        ``DeliveryNotFound``. One that is waiting stays as it is.
        """
        ...


@runtime_checkable
class OutboxBatches(Protocol):
    """Without it, a relay settles deliveries one by one, and claims apart from that."""

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        """As ``settle_delivery`` for each, in order, in one commit; one answer each.

        One refused or malformed settlement never harms another; its error is returned in its
        place, exactly the error the single call would raise. ``StoreUnavailable`` in its place:
        somebody else holds what it needs, nothing of it was settled, send it again. Raises only
        ``StoreUnavailable``, after which any of them may have been settled: send the same ones
        again.
        """
        ...

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        token: str,
        *,
        limit: int = 100,
        seconds: float = 60.0,
        per_origin: int | None = None,
        except_origins: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> tuple[list[Delivery | TenureError], list[Delivery]]:
        """``settle_deliveries``, then ``claim_deliveries``, in one commit: what settling made
        eligible can be claimed at once, and a relay at work waits for half as many commits."""
        ...


# Getting one callback to its target, once.


class NotTaken(Struct, frozen=True, kw_only=True):
    """Why the target has not got it."""

    error: str
    """For people; never holds a secret."""
    again: bool
    """Whether another attempt makes sense."""
    not_before: float = 0.0
    """Seconds the target asked us to wait (``Retry-After``)."""


class CallbackSender(Protocol):
    """One attempt for one delivery. Who tries again, and when, is the relay's business."""

    async def send(self, delivery: Delivery) -> NotTaken | None:
        """``None``: the target has it. Bounded in time and memory whatever the target does; never
        raises for what a target does wrong."""
        ...

    async def close(self) -> None: ...


# Telling the application that embeds Tenure.


class RunStateNotifier(Protocol):
    async def notify(self, payload: CallbackPayload) -> None:
        """Called for every status of the run, of its steps and hosts, in order of
        (version, seq), after the change is durable. Raising never changes the run."""
        ...
