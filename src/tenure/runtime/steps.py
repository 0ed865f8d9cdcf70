"""The progress of one step, or of one run of a handler: which hosts start next, how the step ends,
and the failure budget of rolling steps. Pure decisions, nothing is executed here.

A step runs in waves: a batch of hosts (all of them, unless it rolls) and one loop item at a time.
When no host of a wave waits or runs, its handlers run, then the next wave starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.model.snapshot import ErrorInfo
from tenure.model.status import HostStatus, StepStatus
from tenure.runtime.executor import Outcome
from tenure.runtime.recipe import Recipe
from tenure.runtime.retry_history import NO_PAST, StepPast
from tenure.runtime.stop import MOST_FAILED_HOSTS
from tenure.workflow.spec import Rolling
from tenure.workflow.wording import listed

_UNREACHABLE = HostStatus.UNREACHABLE


class Budget:
    """How many hosts of a rolling step may fail: one budget for a run and all its retries.

    A host counts as it last ended. One that this run tries again counts only if it fails again; one
    that failed before and is not retried counts with the first host that fails here. (By itself it
    stops nothing: a retry may begin with one host to see whether the cause is fixed.)

    ``in_all``: number of hosts of the step; ``hosts``: those of this run; ``before``: hosts that an
    earlier run left failed.
    """

    __slots__ = (
        "_again",
        "_before",
        "_failures",
        "_limit",
        "_not_retried",
        "_unreachable",
        "_unreachable_limit",
    )

    def __init__(
        self,
        rolling: Rolling,
        in_all: int,
        hosts: Collection[str],
        before: Mapping[str, HostStatus],
    ) -> None:
        self._limit = rolling.failure_budget(in_all)
        self._unreachable_limit = rolling.unreachable_budget(in_all)
        self._before = before
        self._failures = self._unreachable = 0
        self._again = False
        """Whether a host failed that had failed before."""
        self._not_retried = sorted(before.keys() - set(hosts)) if before else []
        for host in self._not_retried:
            self._count(before[host])

    def take(self, host: str, status: HostStatus) -> bool:
        """Count a failed host; whether the budget is exceeded."""
        self._count(status)
        self._again |= host in self._before
        return self._failures > self._limit or (
            self._unreachable_limit is not None and self._unreachable > self._unreachable_limit
        )

    def _count(self, status: HostStatus) -> None:
        if status is _UNREACHABLE and self._unreachable_limit is not None:
            self._unreachable += 1
        else:
            self._failures += 1

    def tolerates(self, completed: int) -> bool:
        """Whether failures within the budget are tolerated, ``completed`` hosts having succeeded.

        A budget is for hosts that fail on the way, not for those that are retried because they
        failed: a retry in which no host succeeds has failed.
        """
        return not self._again or completed > 0

    def explained(self, *, spent: bool, completed: int) -> str:
        """Why the step fails, where the hosts that failed in this run do not explain it."""
        if not spent:
            return (
                "" if self.tolerates(completed) else "; failed before, and no host came through now"
            )
        if not self._not_retried:
            return ""
        counts = "counts" if len(self._not_retried) == 1 else "count"
        return f"; {listed(self._not_retried, 5)} failed before and {counts} too"


Wave = tuple[int | None, tuple[str, ...]]
"""Position in the loop, if there is one, and the hosts it concerns."""

Notice = tuple[str, tuple[str, ...]]
"""A handler, and the hosts it is to run on."""

_SUCCESS = HostStatus.SUCCESS
_SKIPPED = HostStatus.SKIPPED
_STEP_FAILED = StepStatus.FAILED
_STEP_SUCCESS = StepStatus.SUCCESS
_STEP_SKIPPED = StepStatus.SKIPPED
_NO_WAVES: Iterator[Wave] = iter(())
_NO_HANDLERS: Iterator[Notice] = iter(())


class Trouble(NamedTuple):
    """Why a step fails although no host of it did."""

    kind: str
    message: str


class StepProgress:
    __slots__ = (
        "_budget",
        "_completed",
        "_deferred_handlers",
        "_done",
        "_waves",
        "_worked",
        "between_items",
        "cut_short",
        "exported",
        "failed",
        "handler",
        "handlers",
        "hosts",
        "index",
        "items",
        "owed",
        "parent",
        "past",
        "position",
        "recipe",
        "running",
        "spent",
        "trouble",
        "unrunnable",
        "waiting",
        "withheld",
    )

    def __init__(
        self,
        index: int,
        recipe: Recipe,
        hosts: tuple[str, ...],
        past: StepPast = NO_PAST,
        owed: Mapping[str, tuple[str, ...]] = {},
        in_all: int | None = None,
        parent: StepProgress | None = None,
    ) -> None:
        """``owed``: handlers that an earlier run notified, each with its hosts; ``in_all``: number
        of hosts of the step, with those that are not left for this run."""
        self.index = index
        self.recipe = recipe
        self.hosts = hosts
        self.past = past
        self._budget: Budget | None = None
        """Without one a failing host never stops the others."""
        if recipe.rolling is not None:
            number = len(hosts) if in_all is None else in_all
            self._budget = Budget(recipe.rolling, number, hosts, past.failed)
        self.owed = owed
        """Handlers that run before the first wave, each with its hosts."""
        self._deferred_handlers: dict[str, tuple[str, ...]] = {}
        """Hosts on which the step runs again first, and the handlers owed to them: a handler runs
        after the work it is for and sees its exports."""
        self.parent = parent
        """The step that notified this handler, still at the item it notified it for."""
        self.waiting: list[str] = []
        """In reverse order."""
        self.running: set[str] = set()
        self.failed: dict[str, Outcome] = {}
        self.between_items: dict[str, bool] = {}
        """Hosts that wait for their next loop item, and whether an earlier item was not skipped."""
        self.spent = False
        """More hosts failed than ``rolling`` allows: no further host starts."""
        self.cut_short = False
        """The run ends before the step does."""
        self.exported: dict[str, dict[str, Any]] = {}
        self.withheld: dict[str, frozenset[str]] = {}
        """Names of exports that hold a secret: passed on to later steps, not recorded."""
        self.unrunnable: dict[str, Outcome] = {}
        """Hosts on which nothing can be executed, with their outcome."""
        self.position: int | None = None
        """Loop position of the current wave."""
        self.items: Mapping[str, Sequence[Any]] | None = None
        self.trouble: Trouble | None = None
        self.handlers = _NO_HANDLERS
        """Those still to run after the current wave."""
        self.handler: StepProgress | None = None
        """The handler that runs now; the step waits for it."""
        self._waves = _NO_WAVES
        self._done: dict[str, tuple[str, ...]] = {}
        """Handlers to run for each host after the current wave."""
        self._completed = 0
        """Number of hosts that succeeded."""
        self._worked = False
        """Whether any host succeeded with any item."""

    def begin(self, hosts: tuple[str, ...], items: Mapping[str, Sequence[Any]] | None) -> None:
        """Run on ``hosts``; ``items`` by host if it loops."""
        self.items = items
        if self.owed:
            self._defer_handlers(frozenset(hosts))
        if items is None and self.recipe.rolling is None and not self.owed:
            self.waiting = list(hosts[::-1])
        else:
            self._waves = self._planned_waves(hosts)
            if not self.owed:
                self.next_wave()

    def _defer_handlers(self, again: frozenset[str]) -> None:
        first: dict[str, tuple[str, ...]] = {}
        for name, hosts in self.owed.items():
            for host in again.intersection(hosts):
                self._deferred_handlers[host] = (*self._deferred_handlers.get(host, ()), name)
            if rest := tuple(host for host in hosts if host not in again):
                first[name] = rest
        self.owed = first

    def _planned_waves(self, hosts: tuple[str, ...]) -> Iterator[Wave]:
        if not hosts:
            return
        rolling = self.recipe.rolling
        size = rolling.batch_size(len(self.hosts)) if rolling is not None else len(hosts)
        for start in range(0, len(hosts), size):
            batch = hosts[start : start + size]
            if self.items is None:
                yield None, batch
                continue
            for position in range(max(map(self._loops, batch))):
                yield position, tuple(host for host in batch if position < self._loops(host))

    def _loops(self, host: str) -> int:
        """Number of items; at least one, since an empty loop still starts the host, which is then
        recorded as skipped."""
        return max(1, len(self.items[host])) if self.items is not None else 1

    def next_wave(self) -> bool:
        for position, hosts in self._waves:
            self.position, self._done = position, {}
            self.waiting = [host for host in reversed(hosts) if self._may_go_on(host)]
            if self.waiting:
                return True
        return False

    def _may_go_on(self, host: str) -> bool:
        return host not in self.failed and (not self.spent or host in self.between_items)

    def start(self) -> list[str]:
        """The hosts that start now, up to the step's concurrency."""
        room = self.recipe.concurrency - len(self.running)
        if not room:
            return []
        started = self.waiting[-room:]
        del self.waiting[-room:]
        started.reverse()
        self.running.update(started)
        return started

    def settle(self, host: str, outcome: Outcome) -> HostStatus | None:
        """Settle a result: the host's final status, or ``None`` if it has a next item."""
        self.running.discard(host)
        status = self._settled(host, outcome)
        self._completed += status is _SUCCESS
        if host in self._deferred_handlers and (status is _SUCCESS or status is _SKIPPED):
            self._done[host] = self._deferred_handlers.pop(host)
            self._worked = True
        return status

    def _settled(self, host: str, outcome: Outcome) -> HostStatus | None:
        status = outcome.status
        if outcome.cut_short:
            self.cut_short = True
        elif status is _SUCCESS or status is _SKIPPED:
            worked = status is _SUCCESS
            if worked:
                self._note_success(host, outcome)
            if self.position is not None:
                return self._item_done(host, self.position, worked)
        else:
            self.failed[host] = outcome
            if self._budget is not None and self._budget.take(host, status):
                self.spent = True
                self.waiting = list(filter(self._may_go_on, self.waiting))
        self.between_items.pop(host, None)
        return status

    def _note_success(self, host: str, outcome: Outcome) -> None:
        self._worked = True
        if self.recipe.notify and outcome.changed is not False:
            self._done[host] = self.recipe.notify
            self._deferred_handlers.pop(host, None)
        if outcome.vars:
            self.exported.setdefault(host, {}).update(outcome.vars)
        if outcome.secret_vars or host in self.withheld:
            before = self.withheld.get(host, frozenset())
            self.withheld[host] = before - outcome.vars.keys() | outcome.secret_vars

    def _item_done(self, host: str, position: int, worked: bool) -> HostStatus | None:
        worked = self.between_items.pop(host, False) or worked
        if position + 1 < self._loops(host):
            self.between_items[host] = worked
            return None
        return _SUCCESS if worked else _SKIPPED

    def handlers_due(self) -> list[Notice]:
        """Handlers to run now, with their hosts: first those an earlier run owes to hosts that are
        done, then after each wave those that were notified in it or are owed to its hosts.

        A step that fails runs no handler. A failure within the budget affects no other host.
        """
        if self.owed:
            owed, self.owed = self.owed, {}
            self._worked = True
            return list(owed.items())
        notices, self._done = self._done, {}
        if not notices or self._fails:
            return []
        due = {
            name: tuple(host for host, names in notices.items() if name in names)
            for name in self.recipe.notify
        }
        return [(name, hosts) for name, hosts in due.items() if hosts]

    @property
    def _fails(self) -> bool:
        return self.spent or (bool(self.failed) and self._budget is None)

    def verdict(self) -> StepStatus:
        """The step's status, once all its work is done."""
        if self.recipe.expect_vars:
            self._miss_exports()
        if self.trouble is not None or self._fails:
            return _STEP_FAILED
        if self._budget is not None and not self._budget.tolerates(self._completed):
            return _STEP_FAILED
        return _STEP_SUCCESS if self._worked or self.failed else _STEP_SKIPPED

    def exports(self) -> Mapping[str, Mapping[str, Any]]:
        """Exports by host, of hosts that succeeded in the whole step, in this run or before."""
        exports: dict[str, Mapping[str, Any]] = dict(self.past.done)
        exports.update(
            (host, said) for host, said in self.exported.items() if host not in self.failed
        )
        return exports

    def shown_exports(self, host: str) -> dict[str, Any]:
        """Exports as recorded: ``vars``, and the names that are ``withheld``, if any."""
        exported, withheld = self.exported.get(host, {}), self.withheld.get(host)
        if not withheld:
            return {"vars": exported}
        shown = {name: value for name, value in exported.items() if name not in withheld}
        return {"vars": shown, "withheld": tuple(sorted(withheld))}

    def _miss_exports(self) -> None:
        """Fail a step that worked but did not export all of ``expect_vars``."""
        if not self._worked or self._fails or self.trouble:
            return
        found = self.past.exported().union(*self.exported.values())
        missing = [name for name in self.recipe.expect_vars if name not in found]
        if missing:
            self.trouble = Trouble("expect_vars", f"expected vars missing: {', '.join(missing)}")

    def message(self) -> str | None:
        """One line for the step: what went wrong, if anything."""
        if self.trouble is not None:
            return self.trouble.message
        if not self.failed:
            return None
        names = sorted(self.failed)
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        first = self.failed[names[0]].message or self.failed[names[0]].status
        number = f"{len(names)} of {len(self.hosts)} hosts ({shown})"
        where = names[0] if len(self.hosts) == 1 else number
        said = f"failed on {where}: {first}"
        if self._budget is not None:
            said += self._budget.explained(spent=self.spent, completed=self._completed)
        return said

    def error(self) -> ErrorInfo:
        """The error of a failed step, for the run's record."""
        names = sorted(self.failed)
        first = self.failed[names[0]] if names else None
        kind = self.trouble.kind if self.trouble else (first.kind if first else None)
        return ErrorInfo(
            kind=kind or "failed",
            message=f"step {self.recipe.name!r} {self.message() or 'failed'}",
            step=self.recipe.name,
            host=names[0] if names else None,
            exit_code=first.exit_code if first else None,
            stderr_tail=first.stderr if first else None,
            failed_hosts=tuple(names[:MOST_FAILED_HOSTS]),
            failed_count=len(names),
        )


Scopes = Callable[[str], Mapping[str, Any]]
"""The variables of each host."""


class StepOpening(Struct, frozen=True, kw_only=True):
    """What a step has to do when it starts: hosts to run on, hosts to skip, reasons to fail."""

    hosts: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    items: Mapping[str, Sequence[Any]] | None = None
    unrunnable: dict[str, Outcome] = {}
    """Hosts on which nothing can be executed, with their outcome."""
    trouble: Trouble | None = None
    message: str | None = None


def open_step(recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes) -> StepOpening:
    if not hosts:
        return StepOpening(message="no host is left for it")
    if recipe.when is None and recipe.loop is None and not recipe.must_vars:
        return StepOpening(hosts=hosts)
    unrunnable: dict[str, Outcome] = {}
    wanted = tuple(host for host in hosts if _wanted(recipe, host, scopes, unrunnable))
    if not wanted:
        return StepOpening(message="its condition holds on no host")
    chosen = set(wanted)
    skipped = tuple(host for host in hosts if host not in chosen)
    missing = _missing(recipe, wanted, scopes)
    if missing is not None:
        return StepOpening(hosts=wanted, skipped=skipped, trouble=missing)
    items = _items(recipe, wanted, scopes, unrunnable)
    return StepOpening(hosts=wanted, skipped=skipped, items=items, unrunnable=unrunnable)


def item_unwanted(recipe: Recipe, scope: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an item whose condition does not hold; ``None`` if it may start."""
    if recipe.when is None or "item" not in recipe.when.names:
        return None
    try:
        if recipe.when.holds(scope):
            return None
    except ExpressionError as error:
        return _failed(error)
    return Outcome(status=HostStatus.SKIPPED, message="its condition does not hold")


def _missing(recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes) -> Trouble | None:
    """Checks ``must_vars`` on every host the step runs on, and reports all that are missing."""
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


def _wanted(recipe: Recipe, host: str, scopes: Scopes, unrunnable: dict[str, Outcome]) -> bool:
    """Whether the step's condition holds; one that uses ``item`` is evaluated for each item."""
    if recipe.when is None or (recipe.loop is not None and "item" in recipe.when.names):
        return True
    try:
        return recipe.when.holds(scopes(host))
    except ExpressionError as error:
        unrunnable[host] = _failed(error)
        return True


def _items(
    recipe: Recipe, hosts: tuple[str, ...], scopes: Scopes, unrunnable: dict[str, Outcome]
) -> Mapping[str, Sequence[Any]] | None:
    if recipe.loop is None:
        return None
    items: dict[str, Sequence[Any]] = {}
    for host in hosts:
        try:
            items[host] = recipe.loop.items(scopes(host))
        except ExpressionError as error:
            items[host] = ()
            unrunnable[host] = _failed(error)
    return items


def _failed(error: ExpressionError) -> Outcome:
    return Outcome(status=HostStatus.FAILED, kind="expression", message=str(error))
