"""The worker: executes queued runs, and continues those whose worker was lost.

*Lease.* A worker claims a run in the store and owns it until its lease ends, which it renews. Every
claim raises the run's *fence*, and the store refuses writes under an older one: a worker that was
frozen, cut off or slow cannot write to a run that was claimed by another. Leases are renewed in a
thread of their own, which the worker's tasks cannot delay; it stops when the worker hangs.

*Before the lease can end* a worker that could not renew in time stops the run's tasks; its
supervisor does so if the worker is frozen or dead. So no task runs beside its successor. The lease
is left to expire and not released, so that the next owner counts as a takeover; takeovers without
progress are limited.

*Takeover.* An expired lease only gives other workers the right to claim the run; they continue from
its record. Finished hosts do not run again. A task that was started and has no result is unknown,
and its step decides about it (``on_takeover``).

``worker`` has the public class, ``claims`` finds and claims runs, ``hints`` claims those a broker
names, ``runs`` executes them.
"""

from tenure.worker.runs import Pace
from tenure.worker.worker import Worker

__all__ = ["Pace", "Worker"]
