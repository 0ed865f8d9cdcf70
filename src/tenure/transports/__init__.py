"""How hosts are reached.

``routing`` picks by address; ``local`` starts processes on this machine; ``unreachable`` answers
for the kinds of address nothing here can reach. The neighbours of ``local`` are its parts:
``spawn`` (start), ``child`` (a process while it runs), ``pipes`` (what goes in and comes out),
``reaping`` (how its end is noticed), ``ending`` and ``group`` (TERM, grace, KILL), ``scratch`` and
``leftovers`` (``$TENURE_OUTPUT``), ``become`` (as another user).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.ports.transport import Transport


def new_transport() -> Transport:
    """Reaches every host this version can reach. Close it when done."""
    from tenure.transports.local import LocalTransport
    from tenure.transports.routing import RoutingTransport
    from tenure.transports.unreachable import UnreachableTransport

    return RoutingTransport({"local": LocalTransport()}, otherwise=UnreachableTransport())
