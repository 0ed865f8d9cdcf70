"""The variables each host sees.

our own < inventory < group (alphabetical) < host < workflow < run < exported by earlier steps <
item.

An export of one host is everybody's. When the hosts of a step export different values of one name,
nobody can say whose is meant: each of them then sees its own, the others see what they themselves
exported before (or a variable from further down), and ``hosts['web1'].KEY`` names one for sure.
The last step that exported a name decides in which of the two ways it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.workflow.environment import HostExports, Scope
from tenure.workflow.plan import Plan
from tenure.workflow.wording import listed

OWN = {"host": "the name of the host a step runs on", "hosts": "what each host exported"}
"""Variables nobody has to set. One of the same name that somebody sets counts more: files that
were written before there was ours mean what they meant."""
NO_ITEM: Any = object()


class Exports:
    """Scopes per host, kept while nothing new is exported.

    Where a run is taken over, ``add`` what the record holds again, in the order the steps ended.
    """

    def __init__(self, plan: Plan, run_vars: Mapping[str, Any] | None = None) -> None:
        self._plan = plan
        self._above_host = {**plan.workflow.vars, **(run_vars or {})}
        self._shared: dict[str, Any] = {}
        self._split: set[str] = set()
        self._hosts = HostExports()
        self._bases: dict[int, dict[str, Any]] = {}
        self._scopes: dict[str, Scope] = {}
        self._common: dict[int, Scope] = {}
        self._latest: tuple[str, Scope] | None = None
        """The host that asked last, and what it sees: the next step often asks for the same."""

    def add(self, exported: Mapping[str, Mapping[str, Any]]) -> str | None:
        """What the hosts of a step exported. Answers with what should be noted on the step."""
        values: dict[str, dict[str, Any]] = {}
        for host, variables in exported.items():
            if variables:
                self._hosts.setdefault(host, {}).update(variables)
                for name, value in variables.items():
                    values.setdefault(name, {})[host] = value
        if not values:
            return None
        self._scopes.clear()
        self._common.clear()
        self._latest = None
        ambiguous = [name for name in values if not self._agreed(name, values[name])]
        if not ambiguous:
            return None
        host = next(iter(values[ambiguous[0]]))
        return (
            f"note: hosts have different values of {listed(ambiguous, 5)}; each sees its own, "
            f"hosts[{host!r}].{ambiguous[0]} is that of {host}"
        )

    def _agreed(self, name: str, by_host: dict[str, Any]) -> bool:
        first = next(iter(by_host.values()))
        if all(value == first for value in by_host.values()):
            self._shared[name] = first
            self._split.discard(name)
            return True
        self._shared.pop(name, None)
        self._split.add(name)
        return False

    def scope(
        self, host: str, item: Any = NO_ITEM, exported: Mapping[str, Any] | None = None
    ) -> Scope:
        """``exported`` is what the host exported in a step that has not ended yet."""
        if self._latest is None or self._latest[0] != host:
            self._latest = host, self._of_host(host)
        scope = self._latest[1]
        if exported:
            scope = scope.adding(exported)
        return scope if item is NO_ITEM else scope.adding({"item": item})

    def _of_host(self, host: str) -> Scope:
        scope = self._scopes.get(host)
        if scope is None:
            scope = self._scopes[host] = self._build(host)
        return scope if "host" in scope else scope.adding({"host": host})

    def _build(self, host: str) -> Scope:
        own_vars = self._plan.hosts[host].vars
        own = self._hosts.get(host)
        exported = self._shared
        if own and self._split:
            exported = exported | {name: own[name] for name in self._split if name in own}
        if exported is not self._shared:
            return Scope({**self._base(own_vars), **exported}, exported)
        # Hosts that differ in nothing share one scope.
        common = self._common.get(id(own_vars))
        if common is None:
            common = Scope({**self._base(own_vars), **exported}, exported.copy())
            self._common[id(own_vars)] = common
        return common

    def _base(self, own_vars: dict[str, Any]) -> dict[str, Any]:
        """What no step can change. Keyed by the mapping itself: the plan keeps it alive."""
        base = self._bases.get(id(own_vars))
        if base is None:
            base = {"hosts": self._hosts, **own_vars, **self._above_host}
            self._bases[id(own_vars)] = base
        return base
