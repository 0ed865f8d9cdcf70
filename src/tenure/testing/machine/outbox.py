"""The plain model of callbacks and of output."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.model.errors import DeliveryLost, DeliveryNotFound, LeaseLost, StoreRejected
from tenure.model.outbox import Delivered, GiveUp, Outcome, PutBack, RetryLater
from tenure.model.update import Fencing
from tenure.ports.environment import Clock
from tenure.ports.store import LogKey
from tenure.testing.machine.ownership import LeaseModel
from tenure.testing.machine.plain import NOW, Plain
from tenure.testing.machine.runs import Run
from tenure.testing.machine.steps import Refusal


class StoreModel(LeaseModel):
    """Everything a store remembers."""

    def __init__(self, clock: Clock, *, leases: bool = True) -> None:
        super().__init__(clock, leases=leases)
        self.logs: dict[tuple[str, LogKey], bytes] = {}
        self.deaths: list[str] = []
        """Dead letters by id, in the order in which they died; a redelivered one leaves."""

    def due(self) -> list[Plain]:
        """What a relay may claim: per run and target the first unsettled, if due and free."""
        lanes: dict[tuple[str, str], list[Plain]] = {}
        for delivery in self.deliveries.values():
            if delivery["state"] == "waiting":
                lanes.setdefault((delivery["run_id"], delivery["target"]), []).append(delivery)
        return [
            head
            for lane in lanes.values()
            if not any(self.in_flight(one) for one in lane)
            for head in (min(lane, key=lambda one: (one["version"], one["seq"])),)
            if not self.not_over(head["until"])
        ]

    def in_flight(self, delivery: Plain) -> bool:
        return delivery["token"] is not None and self.not_over(delivery["until"])

    def held_by(self, token: str) -> list[Plain]:
        return [
            delivery
            for delivery in self.deliveries.values()
            if delivery["token"] == token and delivery["state"] == "waiting"
        ]

    def settle(self, delivery_id: str, token: str, outcome: Outcome) -> Plain:
        delivery = self._delivery(delivery_id)
        if delivery["settled_token"] == token:
            return delivery
        if delivery["token"] != token:
            raise Refusal(DeliveryLost)
        delivery["attempts"] += not isinstance(outcome, PutBack)
        delivery.update(token=None, settled_token=token, until=None)
        match outcome:
            case Delivered():
                delivery.update(state="delivered", settled_at=NOW, last_error=None)
                self._leave_dead(delivery_id)
            case GiveUp(error):
                delivery.update(state="dead", settled_at=NOW, last_error=error, died_of=error)
                self._leave_dead(delivery_id)
                self.deaths.append(delivery_id)
            case RetryLater(delay, error):
                delivery.update(due_at=None, until=self.lease_end(delay), last_error=error)
        return delivery

    def _leave_dead(self, delivery_id: str) -> None:
        if delivery_id in self.deaths:
            self.deaths.remove(delivery_id)

    def requeue(self, delivery_id: str) -> Plain:
        delivery = self._delivery(delivery_id)
        if delivery["state"] != "waiting":
            delivery.update(
                state="waiting",
                attempts=0,
                due_at=None,
                settled_at=None,
                redelivery=True,
                settled_token=None,
            )
        return delivery

    def _delivery(self, delivery_id: str) -> Plain:
        if delivery_id not in self.deliveries:
            raise Refusal(DeliveryNotFound)
        return self.deliveries[delivery_id]

    def callback_errors(self, run: Run) -> Iterator[Plain | None]:
        """What this run may show of its dead letters; ``None`` is none.

        The newest; several if they died at one instant of the wall clock, or it was set back.
        While one waits to be sent again it may still show, or be gone already; and it may say of
        what it died, or why it failed since.
        """
        mine = [self.deliveries[name] for name in self.deaths]
        mine = [one for one in mine if one["run_id"] == run_id_of(run)]
        dead = [one for one in mine if one["state"] == "dead"]
        for one in mine:
            if one["state"] == "waiting" or one["settled_at"] >= dead[-1]["settled_at"]:
                for error in (one["died_of"], one["last_error"]):
                    yield {"target": one["target"], "event": one["type"], "error": error}
        if not dead:
            yield None

    # Output

    def append(self, run_id: str, fencing: Fencing, key: LogKey, offset: int, data: bytes) -> int:
        if not self.holds(self.find(run_id), fencing):
            raise Refusal(LeaseLost)
        stream = self.logs.get((run_id, key), b"")
        if offset > len(stream) or not data.startswith(stream[offset : offset + len(data)]):
            raise Refusal(StoreRejected)
        self.logs[run_id, key] = stream[:offset] + data + stream[offset + len(data) :]
        return len(self.logs[run_id, key])


def run_id_of(run: Run) -> str:
    return str(run.record["run_id"])
