"""What a step finds when its turn comes: hosts to run on, hosts to skip, reasons to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.model.status import HostStatus
from tenure.runtime.course import Trouble
from tenure.runtime.executor import Outcome
from tenure.runtime.recipe import Recipe
from tenure.workflow.wording import listed

Scopes = Callable[[str], Mapping[str, Any]]
"""The variables of each host."""


class Opening(Struct, frozen=True, kw_only=True):
    hosts: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    items: Mapping[str, Sequence[Any]] | None = None
    doomed: dict[str, Outcome] = {}
    """Hosts on which nothing can be executed: their end is known before they start."""
    trouble: Trouble | None = None
    message: str | None = None


def open_step(recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes) -> Opening:
    if not hosts:
        return Opening(message="no host is left for it")
    if recipe.when is None and recipe.loop is None and not recipe.must_vars:
        return Opening(hosts=hosts)
    doomed: dict[str, Outcome] = {}
    wanted = tuple(host for host in hosts if _wanted(recipe, host, scopes, doomed))
    if not wanted:
        return Opening(message="its condition holds on no host")
    chosen = set(wanted)
    skipped = tuple(host for host in hosts if host not in chosen)
    missing = _missing(recipe, wanted, scopes)
    if missing is not None:
        return Opening(hosts=wanted, skipped=skipped, trouble=missing)
    items = _items(recipe, wanted, scopes, doomed)
    return Opening(hosts=wanted, skipped=skipped, items=items, doomed=doomed)


def item_unwanted(recipe: Recipe, scope: Mapping[str, Any]) -> Outcome | None:
    """How an item ends that its condition keeps from starting; ``None`` if it may start."""
    if recipe.when is None or "item" not in recipe.when.names:
        return None
    try:
        if recipe.when.holds(scope):
            return None
    except ExpressionError as error:
        return _failed(error)
    return Outcome(status=HostStatus.SKIPPED, message="its condition does not hold")


def _missing(recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes) -> Trouble | None:
    """Asked only of hosts the step runs on, and of each of them: all that is missing is told."""
    missing: dict[str, None] = {}
    lacking: list[str] = []
    for host in hosts if recipe.must_vars else ():
        scope = scopes(host)
        absent = [name for name in recipe.must_vars if name not in scope]
        if absent:
            lacking.append(host)
            missing |= dict.fromkeys(absent)
    if not lacking:
        return None
    where = f"host {lacking[0]}"
    if len(lacking) > 1:
        where = f"{len(lacking)} of {len(hosts)} hosts ({listed(lacking, 5)})"
    return Trouble("must_vars", f"required vars missing for {where}: {', '.join(missing)}")


def _wanted(recipe: Recipe, host: str, scopes: Scopes, doomed: dict[str, Outcome]) -> bool:
    """A condition that names ``item`` is asked for each item instead."""
    if recipe.when is None or (recipe.loop is not None and "item" in recipe.when.names):
        return True
    try:
        return recipe.when.holds(scopes(host))
    except ExpressionError as error:
        doomed[host] = _failed(error)
        return True


def _items(
    recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes, doomed: dict[str, Outcome]
) -> Mapping[str, Sequence[Any]] | None:
    if recipe.loop is None:
        return None
    items: dict[str, Sequence[Any]] = {}
    for host in hosts:
        try:
            items[host] = recipe.loop.items(scopes(host))
        except ExpressionError as error:
            items[host] = ()
            doomed[host] = _failed(error)
    return items


def _failed(error: ExpressionError) -> Outcome:
    return Outcome(status=HostStatus.FAILED, kind="expression", message=str(error))
