"""The run record and its rules, as plain values and pure functions.

Nothing here reads a clock, opens a file, logs, or knows asyncio: time, randomness and "is the lease
live?" are arguments. So the same rules serve every store, a simulation, and the exhaustive explorer
in ``tests/model``.

    status       states and the tables of every transition
    snapshot     what a run is at one version      update    what may change, events
    decide       judge and apply an update         progress  changes of steps, hosts and items
    compose      build complete updates            leases    create, claim, begin, release
    outbox       callback deliveries               query     filters, pages, owners, topics
    codec  errors  ids  retry  tokens
"""
