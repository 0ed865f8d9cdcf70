"""Transports: how tasks reach hosts.

``routing`` chooses by address. ``local`` runs processes on this machine, as children of this
program (``children``) or of its supervisor (``supervisor``). ``commands`` has their protocols and
process images, ``streams`` their pipes, ``scratch`` the files of ``$TENURE_OUTPUT``.
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
    from tenure.transports.routing import RoutingTransport, UnreachableTransport
    from tenure.transports.supervisor.client import SupervisedStarter, possible

    supervises = supervised and possible()
    starter = SupervisedStarter(task_groups=task_groups) if supervises else None
    return RoutingTransport({"local": LocalTransport(starter)}, otherwise=UnreachableTransport())
