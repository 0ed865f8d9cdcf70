"""Talking to a gateway: what programs ask of it, and a store that is at its other end.

``Gateway`` has a method for each thing people and programs ask. ``HttpStore`` is the store itself,
as far as runners and workers can tell: the same ports, the same errors. Both send each request
under the names that its caller gave it. After ``StoreUnavailable`` nobody knows whether it
happened: that is for the caller to decide, and whoever sends the same again is answered as the
first time.
"""

from tenure.client.gateway import Gateway
from tenure.client.store import HttpStore

__all__ = ["Gateway", "HttpStore"]
