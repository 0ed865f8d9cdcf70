"""The supervisor: a small process per runner that owns the runner's local tasks and ends them.

It is a process of its own since a runner that is killed or frozen cannot end anything, and a
subreaper, so that processes a task abandons (double fork, ``setsid``) become its children and not
those of the machine's first process. Output does not pass through it: the runner makes the pipes
and passes their ends.

The life of a task, as the supervisor sees it::

            SPAWN              its leader ends            RELEASE
    (new) ────────▶ running ───────────────────▶ ended ────────────▶ (forgotten)
      │                │                           │
      │ cannot be      │ END, untrusted,           │ END, END_GROUP, untrusted,
      │ started        │ runner gone               │ runner gone
      ▼                ▼                           ▼
    refused          dying: TERM ─ grace ─▶ STOP ─▶ KILL ─▶ look ──▶ gone | left ── RELEASE ──▶ (")

Which side may do what:

- Only the **runner** starts tasks, and it releases each one exactly once. What a released task left
  running is a daemon that is wanted: it is not ended any more, not even by the end of the runner.
- Only the **supervisor** signals. It ends the whole tree of a task, whatever the reason: what
  descends from its leader, what is in its control group (``cgroups``), what carries its marks or
  its name, and orphans without any that no other task can have started (``tree``). The one
  exception is END_GROUP, for a task that ended by itself: what stayed in its process group may not
  hold up the runner any longer, what left it on purpose lives on.
- Where the system allows it each task has a **control group** of its own, in which its leader is
  born::

      made ahead ──SPAWN──▶ a task's ──after the grace──▶ frozen ──gone or left──▶ thawed
                              │ RELEASE                                              │ RELEASE
                              ▼                                                      ▼
                            no task's: removed once it is empty, and never given to another

  Only the supervisor makes, freezes, thaws and removes them. It waits in the one made ahead, leaves
  it as soon as its task is started, and never freezes one that it could not leave. Whatever is in
  the group of a task is that task's, with no doubt; in the group of one that was released, it is
  not ended.
- An orphan that several may have started is in **doubt** until all of them are being ended, and
  then ends with them. Meanwhile it is not signalled, and each of them that ends says that it is
  left. Where that would not be heard (the runner is gone or not trusted), those released do not
  count.
- The supervisor ends a task by itself when the runner is **gone** (its process ended, or the
  connection closed: either is enough), and when the task is **untrusted**: past the moment until
  which the runner said that the lease of its run can be trusted, by the clock that also counts
  suspended time. A task that comes later is refused. So neither a frozen runner nor one that wakes
  up runs anything beside its successor.
- **gone** is said only after nothing of the task was found, nothing was in doubt, and no
  process had died meanwhile that could have left something; else the numbers of what is **left**
  are told.
- A supervisor that was **stopped** continues with its runner's next message, and when the runner
  ends: both send a CONT.
- If the **supervisor** is killed, its runner looks for groups and marks and ends what it finds
  (``client.rescue``). How those tasks would have ended is not known, and the error says so. The
  next task gets a new supervisor. If both are killed at once, nothing is left that could.

What runs in the supervisor imports nothing else of Tenure and no third party: ``program`` (the loop
and the tasks), ``protocol`` (what is said), ``tree`` (whose a process is), ``cgroups``,
``processes`` (what is there, and what to send when). What runs in the runner: ``client``.
"""
