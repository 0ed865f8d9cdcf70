"""Callbacks: the outbox of a store, the sender of one attempt, and the in-process notifier."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.model.outbox import Delivery, Outcome, Settlement
from tenure.model.query import Page
from tenure.model.status import DeliveryState
from tenure.wire.callbacks import CallbackPayload


class DeliveryClaim(NamedTuple):
    """The arguments of ``Outbox.claim_deliveries``."""

    token: str
    limit: int
    seconds: float
    per_origin: int | None
    except_origins: Collection[str]
    only: Collection[str] | None

    @property
    def most(self) -> int:
        return max(self.limit, 0)

    @property
    def most_per_origin(self) -> int:
        return self.most if self.per_origin is None else max(self.per_origin, 0)


@runtime_checkable
class Outbox(Protocol):
    """Durable callbacks. Without it they are sent from memory, best effort.

    A delivery is created by the update that caused it, in the same atomic write. A relay claims
    some, sends them, and settles each; any number of relays may do so at once. Nothing here changes
    a run's version, status, message, error or times.
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
        while no live claim holds it: one in flight per run and target, in order. A new delivery is
        due at once, a failed one after its delay, measured as leases are.

        At most ``per_origin`` of one origin (``model.outbox.origin_of``), and none of
        ``except_origins``: a relay that is busy with the callbacks of one receiver asks for those
        of the others. Their number must not slow down the search for the others.
        ``only``: consider no other ids; they too must be due and eligible.

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
        """The delivery with this id. ``DeliveryNotFound``."""
        ...

    async def requeue_delivery(self, delivery_id: str) -> Delivery:
        """Send a settled delivery again: same id, ``redelivery`` set, attempts from zero.

        ``DeliveryNotFound``. A waiting delivery is left unchanged.
        """
        ...


@runtime_checkable
class OutboxBatches(Protocol):
    """Settling in batches. Without it a relay settles deliveries one by one."""

    async def settle_deliveries(
        self, settlements: Sequence[Settlement]
    ) -> list[Delivery | TenureError]:
        """As ``settle_delivery`` for each, in order, in one commit; one answer each.

        One refused or malformed settlement never harms another; its error is returned in its
        place, exactly the error the single call would raise. ``StoreUnavailable`` in its place
        means that another process holds a row it needs and nothing of it was settled: send it
        again. Raises only ``StoreUnavailable``, after which any of them may have been settled: send
        the same ones again.
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
        """``settle_deliveries``, then ``claim_deliveries``, in one commit. A delivery that became
        eligible by the first is claimed by the second, and a busy relay commits half as often."""
        ...


class NotTaken(Struct, frozen=True, kw_only=True):
    """A failed attempt: why, and whether to try again."""

    error: str
    """For people; never holds a secret."""
    again: bool
    """Whether another attempt makes sense."""
    not_before: float = 0.0
    """Seconds the target asked us to wait (``Retry-After``)."""


class CallbackSender(Protocol):
    """Makes one attempt for one delivery. Retries are the relay's business."""

    async def send(self, delivery: Delivery) -> NotTaken | None:
        """Send ``delivery``; ``None`` if the target accepted it. Time and memory are bounded
        whatever the target does; a target's mistakes are returned, never raised."""
        ...

    async def close(self) -> None: ...


class RunStateNotifier(Protocol):
    async def notify(self, payload: CallbackPayload) -> None:
        """Called for every status of the run, of its steps and hosts, in order of
        (version, seq), after the change is durable. Raising never changes the run."""
        ...
