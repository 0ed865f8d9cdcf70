"""What the driver says in its own log of connections of ours.

It warns of what else it meets while it cleans up after a call that has failed. The call's own error
says what happened; a program that has set up no logging would find the rest on its standard error,
in words that mean nothing to it. Whoever uses the driver himself, beside us, goes on hearing of his
own connections, and whoever wants to know everything of its other levels.
"""

from __future__ import annotations

import logging
import sys

_DRIVER = ("psycopg", "psycopg.transaction")
"""Whoever of it cleans up. What a logger leaves out is not passed on to those below it."""
_OURS = __name__.rpartition(".")[0]


def keep_to_ourselves() -> None:
    """May be called twice."""
    for name in _DRIVER:
        logging.getLogger(name).addFilter(_is_somebody_elses)


def _is_somebody_elses(record: logging.LogRecord) -> bool:
    """Who called the driver is found out only when it has something to say."""
    if record.levelno != logging.WARNING:
        return True
    caller = sys._getframe().f_back
    while caller is not None:
        if caller.f_globals.get("__name__", "").startswith(_OURS):
            return False
        caller = caller.f_back
    return True
