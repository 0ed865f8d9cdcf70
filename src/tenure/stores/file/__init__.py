"""Runs as files: one append-only journal per run, for small histories on one machine.

For programs that want runs to survive them without any database: a few thousand runs, read now
and then, on a local file system that has ``flock`` and hard links (no network share). It keeps
records, history and definitions, and knows by an operating-system lock whether a run's process
lives. It has no leases, hence no workers and no takeover; no outbox, hence callbacks are best
effort; listing looks at every file. Beyond that take SQLite.

It is also the shortest honest answer to "what does a store need?": what a write does is
``model.leasing.create`` and ``model.apply.apply``; everything here is atomicity and memory.

    frames    a record as one checksummed line       disk      locked files, syncing, errors
    records   what a line says, and how to replay it  names     which file is whose
    journal   one run's file and its replayed state  live      which runs have a living process
    written   its records, to be read without a lock  birth     a journal appears whole
    runs      the port methods, in a thread          listing   pages of summaries
    store     the same, for asyncio                  patience  how long a lock is waited for
    turn      one call's waiting for a lock          gate      who waits to write gets a turn
    told      what need not be said again
"""

from tenure.stores.file.store import FileStore

__all__ = ["FileStore"]
