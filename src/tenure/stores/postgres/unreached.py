"""What became of each server that was asked, when none takes writes.

All of them are told: the dead primary is the news, not the replica beside it that does its duty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from psycopg.errors import ConnectionTimeout

from tenure.model.errors import StoreUnavailable
from tenure.stores.postgres.address import Address, name_of

_KNOWN = re.compile(r"^connection failed: |connection to server .*? failed: ")
"""The driver begins with which server it is about."""


class Unreached(NamedTuple):
    server: dict[str, str]
    error: Exception

    @property
    def silent(self) -> bool:
        return isinstance(self.error, TimeoutError | ConnectionTimeout)

    @property
    def replica(self) -> bool:
        return "read-only" in str(self.error)

    def told(self, address: Address) -> str:
        name, address_of_it = name_of(self.server), self.server.get("hostaddr")
        if address_of_it and self.server.get("host", address_of_it) != address_of_it:
            name += f" ({address_of_it})"
        if self.silent:
            return f"{name} did not answer within {address.connect_timeout:g} s"
        if self.replica:
            return f"{name} is a read replica, or was made read-only"
        said = _KNOWN.sub("", str(self.error)).strip() or type(self.error).__name__
        return f"{name}: {said.splitlines()[0]}"


def refusal(address: Address, unreached: Sequence[Unreached]) -> Exception:
    """Of one server that is neither silent nor a replica: what the driver says of it."""
    if all(each.replica for each in unreached):
        return StoreUnavailable(
            f"{address.place} is a read replica, or was made read-only: it must not decide who "
            "owns a run. Name the primary in the store URL, or all servers, host1,host2"
        )
    if all(each.silent for each in unreached):
        return StoreUnavailable(
            f"{address.place} did not answer within {address.connect_timeout:g} s"
        )
    if len(unreached) == 1:
        return unreached[0].error
    answers = "; ".join(each.told(address) for each in unreached)
    return StoreUnavailable(f"no server of {address.place} takes writes: {answers}")
