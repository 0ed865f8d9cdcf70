"""A connection that notices when a commit was not confirmed by a replica.

A commit that is stopped while it waits for its replica, by us or by a person, succeeds all the
same: it is on the disk of this server, and perhaps on no other. The server says so in a warning.
Whoever took that for an acknowledgement would lose it with the server.
"""

from __future__ import annotations

from functools import partial
from weakref import ReferenceType, ref

import psycopg
from psycopg.errors import Diagnostic

from tenure.stores.postgres.arrays import ArrayDumper
from tenure.stores.postgres.session import Row

_WAITING_FOR_A_REPLICA = "SyncRepWaitForLSN"
"""Where in the server the warning comes from: its words are in whatever language it speaks."""


class Line(psycopg.AsyncConnection[Row]):
    unconfirmed = False
    """Something that was written on it may be lost with its server."""

    def __init__(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.adapters.register_dumper(list, ArrayDumper)
        self.add_notice_handler(partial(_hear, ref(self)))


def _hear(line: ReferenceType[Line], notice: Diagnostic) -> None:
    told = line()
    if told is not None and notice.source_function == _WAITING_FOR_A_REPLICA:
        told.unconfirmed = True
