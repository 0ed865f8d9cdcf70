"""The HTTP front: for people, programs and workers that do not talk to the store themselves.

*One table.* ``routes`` says of every request who may make it, what it takes and what it answers;
server, validation, document and tests read it.

*The way of a request.* ``connections`` waits for its headers, ``endpoint`` asks ``admission`` who
sends it and whether they may, reads its query (``queries``) and its body (``receiving``), and hands
a typed ``Call`` to a handler. What the handler answers, or raises (``problems``), goes back through
``answering``.

*Nothing of its own.* Runs, tokens and even the keys of repeated requests are kept by the store: any
number of gateways may serve one.
"""
