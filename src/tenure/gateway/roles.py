"""Who may do what."""

from __future__ import annotations

from msgspec import Struct

from tenure.model.access import Role

READ = frozenset(Role)
OPERATE = frozenset({Role.OPERATOR, Role.ADMIN})
WORK = frozenset({Role.WORKER, Role.ADMIN})
ADMINISTER = frozenset({Role.ADMIN})


class Caller(Struct, frozen=True, gc=False):
    """Who asks: the name of a token; journals and logs have it."""

    name: str
    role: Role
    queues: frozenset[str] | None = None
    """Whose runs it may see and touch; ``None``: all."""
    token_id: str = ""

    def may_touch(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues
