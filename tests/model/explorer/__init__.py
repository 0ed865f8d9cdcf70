"""Ownership of a run, explored with the real decisions and no SQL.

One run, a store, and everybody who may touch it. The search takes every step that anybody could
take next, in every order, breadth first, so that the first bad history it meets is a shortest
one. What judges a write are the real ``create``, ``apply``, ``claim`` and ``release``; this
package adds only what surrounds them: a journal, a lease flag, messages and people.

*Who there is.*

    worker-a, worker-b   claim the run (``recovery: resume``), or worker-a creates it with
                         its own lease (``interrupt``); drive it task by task: intent, start,
                         result; may drain, that is give the run back at any moment
    reconciler           claims what an owner left behind, ends it as interrupted (``interrupt``)
    operator             cancels, once

*A call* can be answered at once; or be applied while its answer is held up (it arrives any time
later, or never); or be delayed itself (it arrives any time later, perhaps after its sender has
sent it again and gone on, or never: then it was lost). A caller without an answer sends the same
call under the same id again. Refusals are answered at once: a refusal that comes late says
nothing that asking again would not say.

*Time* has no numbers. A lease is live or expired. An owner trusts its lease, or its trust has run
out because it fell silent (froze, hung, lost its network): then it starts nothing, and its
supervisor kills what ran. The trust window ends before the lease does, hence the one rule of
time: a lease can expire only after its owner's trust ran out. A renewal makes the lease live
and the owner trusting again, as long as nobody has claimed. An answer to a claim gives trust only
if that very lease has not expired since: trust counts from when the claim was first sent.
Freezing and thawing need no state of their own: the search may leave anybody unscheduled for as
long as it likes, and whoever moves again has thawed.

*An outage* loses what was on its way and makes every call impossible while time goes on;
afterwards one renew interval passes in which owners that live renew; claims sent in it, also those
sent again, say that expired leases are to be left alone. *A failover*
forgets the newest claim, as an asynchronous replica may.

*What is bounded*: the number of faults, silences, drains, claims per worker, outages (``Bounds``).
Within its bounds a search is exhaustive: it ends when no new state is left.

    protocol    what can be switched off, every call and its answer, the store judged by the model
    world       what each one does next, the state of everything, what must never happen
    search      every step anybody can take and what becomes of it, breadth first; the histories
    holes       STORE-NOTES section 1, each as a rule switched off
"""
