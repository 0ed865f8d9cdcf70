"""Tenure inside an application: its own store, notifier, recorder and actions.

A shop sends parcels. Each order is a run, and the order's number is its id. Runs live in the shop's
own key-value service (``examples/custom_store.py``), the shop's pages are told when an order moves,
and its log gets every event.

    python -m examples.embed_in_application
"""

from __future__ import annotations

import asyncio

from examples.custom_store import DocumentStore, KeyValueService

import tenure


class ShopStore(DocumentStore):
    durable = True  # this shop's service keeps what it has acknowledged


class Pages:
    """A notifier: hears every status once it is durable, in order."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}

    async def notify(self, payload: tenure.CallbackPayload) -> None:
        if payload.type.startswith("run."):
            self.shown[payload.run_id] = payload.status


class AuditLog:
    """A recorder: gets every event exactly as the run's journal has it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def record(self, event: tenure.RecordedEvent) -> None:
        place = " ".join(filter(None, (event.step, event.host)))
        self.lines.append(f"{event.run_id} {event.position} {event.type} {place}".rstrip())


@tenure.action("payment.charge")
async def charge(customer: str, cents: int) -> dict[str, str]:
    """Stands for a call to the bank."""
    if cents > 10_000:
        raise PermissionError(f"{customer}'s card was declined")
    return {"RECEIPT": f"R-{customer}-{cents}"}


SEND_PARCEL = tenure.Workflow(
    name="send-parcel",
    timeout=60,
    steps=[
        tenure.Step(
            name="charge",
            action="payment.charge",
            args={"customer": "${customer}", "cents": "${{ cents }}"},
        ),
        tenure.Step(
            name="label",
            action="cmd.run",
            args={"cmd": 'echo "to $customer, receipt $RECEIPT"'},
            retries=tenure.Retries(max=2),
        ),
    ],
)


class Shop:
    def __init__(self, service: KeyValueService) -> None:
        self.pages = Pages()
        self.audit = AuditLog()
        self.runner = tenure.Runner(
            ShopStore(service),
            notifier=self.pages,
            recorders=[self.audit],
            runner_id="shop-1",  # our own name: what an earlier shop-1 left behind is ours to end
        )

    async def order(self, number: str, customer: str, cents: int) -> tenure.RunSnapshot:
        options = tenure.RunOptions(
            run_id=f"order-{number}",
            vars={"customer": customer, "cents": cents},
            labels={"customer": customer},
        )
        return await self.runner.run(SEND_PARCEL, options)


async def main() -> None:
    shop = Shop(KeyValueService())
    async with shop.runner as runner:
        paid, declined = await asyncio.gather(
            shop.order("1001", "ada", 4_500), shop.order("1002", "bob", 99_000)
        )
        print(f"{paid.run_id}: {paid.status}: {paid.steps[1].hosts['local'].stdout}", end="")
        print(f"{declined.run_id}: {declined.status}: {declined.message}")

        try:
            await shop.order("1001", "ada", 4_500)
        except tenure.RunExists as refusal:
            print(f"the button was pressed twice: {refusal}")

        await runner.annotate("order-1002", {"called": "bob pays by invoice"}, by="support")
        bobs = await runner.list_runs(tenure.RunFilter(labels={"customer": "bob"}))
        print("bob's orders:", [(order.run_id, str(order.status)) for order in bobs.items])

    for order, status in sorted(shop.pages.shown.items()):
        print(f"the page of {order} says: {status}")
    print("the audit log of order-1001:")
    for line in shop.audit.lines:
        if line.startswith("order-1001"):
            print(f"  {line}")


if __name__ == "__main__":
    asyncio.run(main())
