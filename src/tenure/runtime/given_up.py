"""The log's line for a callback that nobody will send again by itself."""

from __future__ import annotations

import logging

from tenure.model.outbox import Delivery

_log = logging.getLogger("tenure.runtime")


def note_given_up(delivery: Delivery, error: str | None) -> None:
    _log.warning(
        "callback %s of run %s to %s is given up after %d attempt%s: %s",
        delivery.event.type,
        delivery.run_id,
        delivery.target.name,
        delivery.attempts,
        "" if delivery.attempts == 1 else "s",
        error,
    )
