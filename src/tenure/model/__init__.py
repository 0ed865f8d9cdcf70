"""The run record and its rules, as plain values and pure functions.

Nothing here reads a clock, opens a file, logs, or knows asyncio: time, randomness and
"is the lease live?" are arguments. That is what lets the same rules serve every store,
a simulation, and the exhaustive explorer in ``tests/model``.

    status       the states               transitions  the tables of every change
    snapshot     what a run is            judge        may this update be written?
    update       what may change          apply        write it: the one way a status moves
    compose      complete updates         progress     what an owner reports of steps and hosts
    events       what happened            closing      what an end does to the rest
    leasing      create, claim, release   outbox       callbacks: order, settling, dead letters
    ids  errors  places  tally  retry  query  codec
"""
