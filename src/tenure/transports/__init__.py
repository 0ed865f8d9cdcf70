"""Transports: how tasks reach hosts.

``routing`` chooses by address. ``local`` runs processes on this machine, as children of this
program (``children``) or of its supervisor (``supervisor``). ``commands`` has their protocols and
process images, ``streams`` their pipes, ``scratch`` the files of ``$TENURE_OUTPUT``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in tenure: a supervisor imports this package and has no use for typing
if TYPE_CHECKING:
    from tenure.ports.execution import LocalTasks, Transport


def new_transport(*, supervised: bool = False, tasks: LocalTasks | None = None) -> Transport:
    """Reaches every host this version can reach. Close it when done.

    ``supervised``: local processes belong to a supervisor, wherever the system can have one;
    ``tasks``: how they are started.
    """
    from tenure.ports.execution import LocalTasks
    from tenure.transports.children import ChildStarter
    from tenure.transports.local import LocalTransport
    from tenure.transports.routing import RoutingTransport, UnreachableTransport
    from tenure.transports.supervisor.client import SupervisedStarter, possible

    wanted = tasks or LocalTasks()
    starter = SupervisedStarter(wanted) if supervised and possible() else ChildStarter(wanted)
    local = LocalTransport(starter, another_user=wanted.user is not None)
    return RoutingTransport({"local": local}, otherwise=UnreachableTransport())
