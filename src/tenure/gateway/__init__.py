"""The HTTP API: for people, programs and workers that do not use the store directly.

*One table.* ``routes`` has for every request its roles, parameters, body and answers; the server,
validation, the OpenAPI document and tests are made from it.

*A request* is checked by ``auth`` (token, role, rate), decoded by ``routing`` (query and body), and
passed as a typed ``Call`` to a handler (``runs``, ``submit``, ``leases``, ``updates``, ``output``,
``callbacks``, ``system``). The handler's answer goes back through ``answers``, its errors through
``problems``; ``live`` streams events and output.

*No state of its own.* Runs, tokens and keys of repeated requests are in the store: any number of
gateways may serve one store.
"""
