"""Clients of a gateway.

``Gateway`` has a method for each request of people and programs. ``HttpStore`` is a store behind a
gateway, with the same ports and errors, for runners and workers. Requests carry the ids given by
the caller. After ``StoreUnavailable`` it is unknown whether the request was executed; the same
request sent again gets the first answer.
"""

from tenure.client.gateway import Gateway
from tenure.client.store import HttpStore

__all__ = ["Gateway", "HttpStore"]
