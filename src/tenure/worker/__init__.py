"""The process that executes queued runs, and goes on with those whose worker was lost.

*The lease.* A worker claims a run in the store: from then on it is the run's owner, until a moment
that renewing moves on. Every claim raises the run's *fence*, and the store refuses each write under
an older one. So whatever a worker believes that was frozen, cut off, or slow: once somebody else
has claimed its run, it cannot write a word of it. Renewing has a thread of its own, which nothing
that a worker does can hold up; it stops when the worker itself no longer moves.

*Before the lease can end* a worker that could not renew in time stops the run's tasks by itself;
its supervisor does so if the worker is frozen or dead. So no task runs beside its successor's. It
leaves the lease to end and does not release it: whoever goes on with the run takes it over, and
takeovers without progress are counted.

*What follows.* An expired lease gives others the right to claim, and nothing more: they go on from
the record. Finished hosts do not run again. What had been started and has no result is unknown, and
its step says what is done about it (``on_takeover``).

``claiming`` asks the store for runs, ``neighbours`` misses who is gone from this machine, ``lone``
sees whether just one waits, ``preparing`` makes one ready to be executed, ``shift`` executes it,
``duty`` keeps all of that going, and drains.
"""

from tenure.worker.runs import Pace
from tenure.worker.worker import Worker

__all__ = ["Pace", "Worker"]
