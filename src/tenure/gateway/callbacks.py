"""Callback deliveries: list, read, send again."""

from __future__ import annotations

from tenure.gateway.auth import check_unlimited, reached
from tenure.gateway.calls import Answer, Call, GatewayState
from tenure.model.errors import DeliveryNotFound, NotSupported, RunNotFound
from tenure.model.ids import check_run_id
from tenure.ports.callbacks import Outbox
from tenure.wire.callbacks import details_of, summary_of
from tenure.wire.runs import CallbackPage, CallbacksQuery, NoQuery


async def list_callbacks(call: Call[CallbacksQuery, None]) -> Answer:
    asked, outbox = call.query, _outbox(call.parts)
    if asked.run_id is None:
        check_unlimited(call.caller, "this lists the callbacks of all runs: name a run_id")
    else:
        await reached(call.parts, call.caller, check_run_id(asked.run_id))
    page = await outbox.list_deliveries(
        state=asked.state, run_id=asked.run_id, limit=asked.limit, cursor=asked.cursor
    )
    callbacks = tuple(map(summary_of, page.items))
    return Answer(value=CallbackPage(callbacks=callbacks, cursor=page.cursor))


async def get_callback(call: Call[NoQuery, None]) -> Answer:
    await _check_reaches(call)
    delivery = await _outbox(call.parts).get_delivery(call.path["delivery_id"])
    return Answer(value=details_of(delivery))


async def redeliver(call: Call[NoQuery, None]) -> Answer:
    await _check_reaches(call)
    again = await call.parts.desk.redeliver(call.path["delivery_id"], by=call.caller.name)
    return Answer(value=details_of(again))


async def _check_reaches(call: Call[NoQuery, None]) -> None:
    if call.caller.queues is None:
        return
    delivery = await _outbox(call.parts).get_delivery(call.path["delivery_id"])
    try:
        await reached(call.parts, call.caller, delivery.run_id)
    except RunNotFound as error:
        raise DeliveryNotFound(delivery.id) from error


def _outbox(parts: GatewayState) -> Outbox:
    if isinstance(parts.store, Outbox):
        return parts.store
    raise NotSupported(f"{type(parts.store).__name__} keeps no callbacks")
