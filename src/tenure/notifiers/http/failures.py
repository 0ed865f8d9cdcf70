"""Why there was no answer. All are an ``OSError``, like what the system itself says of connections.

OSError
├── OffLimits          it leads where callbacks may not go (``guard``)
├── NotResolved        nobody knows where its name leads
├── NoConnection       none came about in time, TLS included; also a ``TimeoutError``
├── Unanswered         the connection ended first
├── NoEndOfIt          it sends and sends and never answers
├── NotHttp            what it sent is no answer
└── NoLongerSending    we are about to end
"""

from __future__ import annotations

from tenure.model.errors import TenureError


class NotResolved(TenureError, OSError):
    """``str()`` is what the resolver says."""


class NoConnection(TenureError, TimeoutError):
    """To none of the addresses that were tried."""


class Unanswered(TenureError, OSError):
    """They closed the connection while we waited."""


class NoEndOfIt(TenureError, OSError):
    """More came than the head of any answer needs."""


class NotHttp(TenureError, OSError):
    """``str()`` is what the parser misses; it quotes nothing of what came."""


class NoLongerSending(TenureError, OSError):
    """This sender was closed."""
