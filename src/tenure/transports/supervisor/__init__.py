"""One small process per runner that owns the runner's local tasks, and ends them when it should.

Why a process of its own: a runner that was killed or is frozen ends nothing. Why a subreaper: what
a task starts and abandons (double fork, ``setsid``) becomes a child of the supervisor, not of the
machine's first process, so nothing leaves its sight. Output never passes through it: the runner
makes the pipes and hands over the ends.

The life of a task, as the supervisor sees it::

            SPAWN              its leader ends            RELEASE
    (new) ────────▶ running ───────────────────▶ ended ────────────▶ (forgotten)
      │                │                           │
      │ cannot be      │ END, untrusted,           │ END, END_GROUP, untrusted,
      │ started        │ runner gone               │ runner gone
      ▼                ▼                           ▼
    refused          dying: TERM ─ grace ─▶ STOP ─▶ KILL ─▶ look ──▶ gone | left ── RELEASE ──▶ (")

Who may do what:

- Only the **runner** starts tasks, and it releases each one exactly once. What a released task left
  running is a daemon somebody wanted: nobody ends it any more, not even the end of the runner.
- Only the **supervisor** signals. It ends the whole tree of a task, whatever the reason: what
  descends from its leader, what is in its control group (``task_groups``), what carries its marks
  (``marks``, ``slack``) or its name (``names``), and orphans without any that nobody else can have
  started (``suspicion``). The one exception is END_GROUP, for a task that ended by itself: what
  stayed in its process group may not hold up the runner any longer, what left it on purpose lives
  on.
- Where the system allows it each task has a **control group** of its own, in which its leader is
  born::

      made ahead ──SPAWN──▶ a task's ──after the grace──▶ frozen ──gone or left──▶ thawed
                              │ RELEASE                                              │ RELEASE
                              ▼                                                      ▼
                            nobody's: removed once it is empty, and never given to another task

  Only the supervisor makes, freezes, thaws and removes them. It waits in the one made ahead, leaves
  it as soon as its task is started, and never freezes one that it could not leave. Whatever is in
  the group of a task is that task's, with no doubt; in the group of one that was released, nobody's
  to end.
- An orphan that several may have started is in **doubt** until all of them are being ended, and
  then ends with them. Meanwhile nobody signals it, and whoever of them ends says that it is left.
  Where nobody would hear that (the runner is gone or not trusted), those released do not count.
- The supervisor ends a task by itself when the runner is **gone** (its process ended, or the
  connection closed: either is enough), and when the task is **untrusted**: past the moment until
  which the runner said that the lease of its run can be trusted, by the clock that also counts
  suspended time. A task that comes later is refused. So neither a frozen runner nor one that wakes
  up runs anything beside its successor.
- **gone** is said only after nothing of the task was found, nothing was in doubt, and nobody had
  died meanwhile who could have left something; else the numbers of what is **left** are told.
- A supervisor that was **stopped** goes on with the next thing its runner tells it, and when the
  runner ends: both come with a CONT.
- If the **supervisor** is killed, its runner looks for groups and marks and ends what it finds
  (``rescue``). How those tasks would have ended nobody knows, and the error says so. The next task
  gets a new supervisor. If both are killed at once, nobody is left who could.

What runs in the supervisor, which imports nothing else of Tenure and no third party: ``program``
(the loop), ``channel`` and ``frames`` (what is said), ``wardship`` and ``task`` (the tasks),
``spawning``, ``census`` (who is there), ``lineage`` (who is whose) by ``task_groups``, ``marks``,
``slack``, ``names``, ``kinship``, ``orphans`` and ``suspicion``, ``demise`` (what to send when),
``enclosures`` (what is in no group, or not ours to signal), ``cgroups`` (where groups are). What
runs in the runner: ``starter``, ``ward`` (one task), ``link``, ``sender``, ``launch``, ``rescue``.
"""
