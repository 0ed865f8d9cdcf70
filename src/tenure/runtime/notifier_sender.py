"""The application's own notifier, called like any other receiver."""

from __future__ import annotations

import logging

from tenure.model.outbox import Delivery
from tenure.ports.notifier import RunStateNotifier
from tenure.ports.sender import NotTaken
from tenure.wire.callback import payload

_log = logging.getLogger("tenure.runtime")


class NotifierSender:
    """Whatever the notifier raises is logged in full and tried again. The record names the kind of
    error only: nobody knows what its words hold."""

    def __init__(self, notifier: RunStateNotifier) -> None:
        self._notifier = notifier

    async def send(self, delivery: Delivery) -> NotTaken | None:
        said = payload(delivery.event, delivery.workflow_name, delivery.run_status)
        try:
            await self._notifier.notify(said)
        except Exception as error:  # noqa: BLE001  an onlooker never changes the run
            _log.exception("the notifier failed on %s of run %s", said.type, said.run_id)
            return NotTaken(error=f"the notifier raised {type(error).__name__}", again=True)
        return None

    async def close(self) -> None:
        """The notifier is the application's."""
