"""What hints are told on. Runs to claim have a channel of their own: most processes of a busy
database submit some, and none of them need be woken by what all the others submit."""

from __future__ import annotations

from tenure.model.query import is_of_queue

LISTEN = {"tenure": "listen", "tenure_queue": "listen_to_queues"}
"""By which statement each is heard."""


def channel_of(topic: str) -> str:
    return "tenure_queue" if is_of_queue(topic) else "tenure"
