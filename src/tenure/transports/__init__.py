"""How hosts are reached.

``routing`` picks by address; ``local`` starts processes on this machine; ``unreachable`` answers
for the kinds of address nothing here can reach.

``local`` leaves to a starter (``starting``) whose child a process becomes: this program's
(``children``, with ``child``, ``reaping``, ``ending``, ``group``) or its supervisor's
(``supervisor``). The rest serves both: ``spawn`` (what becomes a process, and why not),
``plumbing``, ``pipes`` and ``streams`` (what goes in and comes out), ``scratch`` and ``leftovers``
(``$TENURE_OUTPUT``), ``become`` and ``foreign`` (as another user).
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in tenure: a supervisor imports this package and has no use for typing
if TYPE_CHECKING:
    from tenure.ports.execution import Transport


def new_transport(*, supervised: bool = False, task_groups: bool = True) -> Transport:
    """Reaches every host this version can reach. Close it when done.

    ``supervised``: local processes belong to a supervisor, wherever the system can have one;
    ``task_groups``: each in a control group of its own, where that is allowed.
    """
    from tenure.transports.local import LocalTransport
    from tenure.transports.routing import RoutingTransport
    from tenure.transports.supervisor.launch import possible
    from tenure.transports.supervisor.starter import SupervisedStarter
    from tenure.transports.unreachable import UnreachableTransport

    supervises = supervised and possible()
    starter = SupervisedStarter(task_groups=task_groups) if supervises else None
    return RoutingTransport({"local": LocalTransport(starter)}, otherwise=UnreachableTransport())
