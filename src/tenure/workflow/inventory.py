"""The hosts of a workflow: addresses, groups and variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from tenure.workflow.spec import GroupSpec, HostSpec, Inventory

LOCAL = "local"
_THIS_MACHINE = frozenset({LOCAL, "localhost", "127.0.0.1"})


class PlannedHost(Struct, frozen=True, kw_only=True):
    name: str
    address: str
    """``local``, or with a scheme: ``ssh://…``, ``http://…``."""
    local: bool
    groups: tuple[str, ...]
    vars: dict[str, Any]
    """Inventory < groups in alphabetical order < host. Shared between hosts: read-only."""


class Roster(Struct, frozen=True, kw_only=True):
    """Hosts and groups by name. A name that is both means the host."""

    hosts: dict[str, PlannedHost]
    groups: dict[str, GroupSpec]

    @property
    def names(self) -> Iterator[str]:
        return chain(self.hosts, self.groups)

    def knows(self, name: str) -> bool:
        return name in self.hosts or name in self.groups

    def choose(self, names: Sequence[str]) -> tuple[str, ...]:
        """The hosts behind ``names``, each once, sorted; no names: all hosts."""
        if not names:
            return tuple(self.hosts)
        chosen: set[str] = set()
        for name in dict.fromkeys(names):
            if name in self.hosts:
                chosen.add(name)
            else:
                chosen.update(self.groups[name].hosts)
        return tuple(sorted(chosen))


def roster_of(inventory: Inventory, *, local: bool = False) -> Roster:
    """Every host. An empty inventory means this machine, as host ``local``."""
    member_of: dict[str, list[str]] = {name: [] for name in inventory.hosts}
    for group in sorted(inventory.groups):
        for host in dict.fromkeys(inventory.groups[group].hosts):
            member_of.setdefault(host, []).append(group)
    if not member_of:
        member_of[LOCAL] = []
    shared: dict[tuple[str, ...], dict[str, Any]] = {}
    hosts = {}
    for name in sorted(member_of):
        groups = tuple(member_of[name])
        spec = inventory.hosts.get(name) or HostSpec()
        if groups not in shared:
            shared[groups] = _merged(inventory, groups)
        address = LOCAL if local else place_of(name, spec.address)
        hosts[name] = PlannedHost(
            name=name,
            address=address,
            local=address == LOCAL,
            groups=groups,
            vars=shared[groups] | spec.vars if spec.vars else shared[groups],
        )
    return Roster(hosts=hosts, groups=inventory.groups)


def _merged(inventory: Inventory, groups: Iterable[str]) -> dict[str, Any]:
    merged = dict(inventory.vars)
    for group in groups:
        merged.update(inventory.groups[group].vars)
    return merged


def place_of(name: str, address: str | None) -> str:
    """The address of a host. Without a scheme an address (or name) is for SSH."""
    place = (address or name).strip()
    if place.lower() in _THIS_MACHINE:
        return LOCAL
    if "://" in place:
        return place
    bare_ipv6 = place.count(":") > 1 and not place.startswith("[")
    return f"ssh://[{place}]" if bare_ipv6 else f"ssh://{place}"
