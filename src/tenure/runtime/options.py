"""The options of runs, callbacks, leases and retention: defaults, bounds and checks.

Each struct checks itself when it is made: ``InvalidOptions`` names every wrong option, the value
given and what is expected. A value of the wrong type would otherwise fail late or never (text given
for a list of hosts is a list of letters).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from math import isfinite
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import force_setattr

from tenure.model.codec import UNSTORABLE, encode, why_not_kept
from tenure.model.errors import InvalidOptions, InvalidWorkflow
from tenure.model.leases import MAX_PRIORITY, MIN_PRIORITY
from tenure.model.query import MAX_AGE_SECONDS
from tenure.model.retry_policy import RetryPolicy
from tenure.model.snapshot import CallbackTarget
from tenure.model.status import Recovery
from tenure.ports.callbacks import RunStateNotifier
from tenure.ports.store import RunStateStore
from tenure.workflow.callbacks import Signing, read_hooks
from tenure.workflow.spec import CallbackSpec
from tenure.workflow.wording import called, shown

# Upper bounds of options and settings, so that a typing error does not silently stop everything.
MOST_AT_ONCE = 10_000
"""Runs that one worker executes."""
MOST_CLAIMED = 1000
"""Runs that one claim takes."""
MOST_TAKEOVERS = 1_000_000
MOST_PRUNED_PER_S = 100_000
MOST_ATTEMPTS = 1000
LARGEST_BACKOFF = 1000.0
LONGEST_DELAY_S = 30 * 86_400.0
LONGEST_ATTEMPT_S = 3600.0
"""A callback stays claimed for so long if its process dies while sending it."""
LONGEST_FLUSH_S = 86_400.0
MAX_QUEUE_NAME = 100
A_QUEUE = f"a queue's name: printable, 1 to {MAX_QUEUE_NAME} characters"


# Checks of values.

Rule = tuple[Callable[[Any], bool], str]
"""A check, and what is expected."""
Rules = Mapping[str, Rule]
_MAX_FAULTS = 10


def is_a(kind: Any) -> Callable[[Any], bool]:
    """A check whether msgspec accepts a value as ``kind``, without converting text."""

    def fits(value: Any) -> bool:
        try:
            convert(value, kind, builtin_types=(bytes, datetime))
        except ValidationError:
            return False
        return True

    return fits


def is_number(
    least: float, most: float = sys.float_info.max, *, above: bool = False
) -> Callable[[Any], bool]:
    """A check for a finite number. ``above``: ``least`` itself is too small."""
    bounds = Meta(gt=least, le=most) if above else Meta(ge=least, le=most)
    return is_a(Annotated[float, bounds])


def whole(least: int, most: int) -> Rule:
    fits = is_a(Annotated[int, Meta(ge=least, le=most)])
    return fits, f"a whole number from {least} to {most}"


def is_queue(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_QUEUE_NAME and value.isprintable()


def _up_to(most: float, *, zero: bool = True) -> Rule:
    if zero:
        return is_number(0, most), f"seconds from 0 to {most:g}"
    return is_number(0, most, above=True), f"seconds, more than 0 and at most {most:g}"


def _are_targets(value: Any) -> bool:
    kinds = (CallbackSpec, CallbackTarget)
    return isinstance(value, list | tuple) and all(isinstance(each, kinds) for each in value)


SECONDS: Rule = (is_number(0), "a number of seconds, zero or more")
MORE_SECONDS: Rule = (is_number(0, above=True), "a number of seconds, more than zero")
_TEXT: Rule = (is_a(str), "text")
_FLAG: Rule = (is_a(bool), "True or False")
_TARGETS: Rule = (_are_targets, "a list of CallbackSpec")


def broken(rules: Rules, options: Any, names: Collection[str]) -> list[str]:
    """Messages for the rules of ``names`` that ``options`` breaks. They repeat numbers but no text
    (besides ``recovery``), which could be a secret in the wrong place."""
    wrong: list[str] = []
    for name in rules:
        if name in names and not rules[name][0](value := getattr(options, name)):
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            given = f"{value:g}" if plain else called(value)
            given = shown(value) if name == "recovery" else given
            wrong.append(f"{name} must be {rules[name][1]}, and is {given}")
    return wrong


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise InvalidOptions(wrong)


def _problems_of_targets(name: str, targets: Sequence[CallbackSpec | CallbackTarget]) -> list[str]:
    """Checked by the rules of a workflow's ``callbacks``."""
    if not targets:
        return []
    from tenure.workflow.parse import read_targets  # imported only if needed

    try:
        read_targets([_spec_of(each) for each in targets])
    except InvalidWorkflow as error:
        return [
            f"{name}{each.path.removeprefix('callbacks')}: {each.message}"
            + (f"; {each.hint}" if each.hint else "")
            for each in error.mistakes
        ]
    return []


def _spec_of(target: CallbackSpec | CallbackTarget) -> CallbackSpec:
    if isinstance(target, CallbackSpec):
        return target
    return CallbackSpec(
        url=target.url or "",
        events=target.events,
        secret_env=target.secret_env,
        headers=target.headers,
    )


def _problems_of_values(name: str, values: Mapping[str, Any]) -> list[str]:
    """Values that cannot be stored, by their place: ``vars.x[0].y``."""
    try:
        # NaN and infinity are written as null.
        if not values or b"null" not in encode(dict(values)):
            return []
    except UNSTORABLE:
        pass
    try:
        return list(islice(_faults(name, dict(values)), _MAX_FAULTS))
    except RecursionError:
        return [f"{name} holds something nested without end"]


def _faults(place: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _faults(f"{place}.{key}", each)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _faults(f"{place}[{index}]", each)
    elif isinstance(value, float):
        if not isfinite(value):
            yield f"{place} is {value}, a number that has no form in JSON"
    else:
        try:
            encode(value)
        except UnicodeEncodeError:
            yield f"{place} is text that is no Unicode"
        except UNSTORABLE:
            yield (
                f"{place} is of the type {type(value).__name__}, which no record can hold: give "
                "text, a number, True, False, None, a list or a map of these"
            )


# Runs.


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of one run; defaults come from the workflow and the runner.

    ``InvalidOptions`` names everything of a wrong type, before anything is executed.
    """

    run_id: str | None = None
    store: RunStateStore | None = None
    notifier: RunStateNotifier | None = None
    vars: Mapping[str, Any] = {}
    secrets: Mapping[str, str] = {}
    """Variables that are not stored."""
    labels: Mapping[str, str] = {}
    callbacks: Sequence[CallbackSpec | CallbackTarget] = ()
    """In addition to those of the workflow."""
    queue: str | None = None
    priority: int | None = None
    run_after: datetime | None = None
    recovery: Recovery | None = None
    timeout: float | None = None
    """Seconds for the whole run; zero: no limit."""
    limit: Sequence[str] = ()
    """Only these hosts and groups; empty: all."""
    local: bool = False
    """Run the tasks of all hosts on this machine, for trials."""
    retry_of: str | None = None
    approved_by: str | None = None
    requested_by: str | None = None
    """The requester, for the journal."""
    files: Mapping[str, bytes] | None = None
    """Files for its actions, by the names in their arguments; ``None``: read from the folder of the
    workflow."""

    def __post_init__(self) -> None:
        given = {name for name in _OF_RUNS if getattr(self, name) is not None}
        _refuse(broken(_OF_RUNS, self, given | _NEVER_NONE))
        _refuse(
            [
                *_problems_of_values("vars", self.vars),
                *_problems_of_targets("callbacks", self.callbacks),
            ]
        )
        if self.recovery is not None:  # given by name
            force_setattr(self, "recovery", Recovery(self.recovery))


_OF_RUNS: Rules = {
    "run_id": _TEXT,
    "store": (is_a(RunStateStore), "an open store, as tenure.open_store(url) gives"),
    "notifier": (
        lambda value: callable(getattr(value, "notify", None)),
        "an object with an async method notify, as RunStateNotifier has it",
    ),
    "vars": (is_a(Mapping[str, Any]), "a map from names to values"),
    "secrets": (is_a(Mapping[str, str]), "a map from names to text"),
    "labels": (is_a(Mapping[str, str]), "a map from text to text"),
    "callbacks": _TARGETS,
    "queue": (is_queue, A_QUEUE),
    "priority": whole(MIN_PRIORITY, MAX_PRIORITY),
    "run_after": (
        lambda value: isinstance(value, datetime) and why_not_kept(value) is None,
        "a datetime with its time zone, up to the year 9998",
    ),
    "recovery": (is_a(Recovery), "'interrupt' or 'resume'"),
    "timeout": SECONDS,
    "limit": (is_a(Sequence[str]), "a list of hosts and groups"),
    "local": _FLAG,
    "retry_of": _TEXT,
    "approved_by": _TEXT,
    "requested_by": _TEXT,
    "files": (is_a(Mapping[str, bytes]), "a map from names to bytes"),
}
_NEVER_NONE = frozenset({"vars", "secrets", "labels", "callbacks", "limit", "local"})


# Callbacks.

_JITTER = 0.2
"""Random share of a wait that is cut, so that callbacks that failed together spread out."""


class CallbackSettings(Struct, frozen=True, kw_only=True):
    """Callbacks: targets, retries and limits. Times are seconds."""

    targets: tuple[CallbackSpec | CallbackTarget, ...] = ()
    """Targets for every run, besides those of its workflow and its options."""
    hooks: Mapping[str, Sequence[str]] = {}
    """Origins that each secret signs for, besides those of ``targets`` and of workflows given to
    ``Runner.run``: ``{"TENURE_HOOK_SHOP": ["https://shop.example"]}``."""
    attempts: int = 8
    """In all; after that the callback is a dead letter."""
    delay: float = 5.0
    backoff: float = 4.0
    max_delay: float = 3600.0
    timeout: float = 15.0
    """For one attempt."""
    allow_private: bool = False
    """Whether callbacks may go to loopback, link-local and private addresses."""
    flush: float = 5.0
    """How long closing waits until each callback was tried. The rest stays in the outbox."""

    def __post_init__(self) -> None:
        """``InvalidOptions`` names all invalid options."""
        _refuse(broken(_OF_CALLBACKS, self, _OF_CALLBACKS))
        _refuse(_problems_of_targets("targets", self.targets))
        force_setattr(self, "targets", tuple(self.targets))
        try:
            force_setattr(self, "hooks", read_hooks(self.hooks))
        except ValueError as error:
            raise InvalidOptions([f"hooks: {error}"]) from error

    def signing(self) -> Signing:
        return Signing(self.hooks, self.targets)

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts=self.attempts,
            delay=self.delay,
            backoff=self.backoff,
            max_delay=self.max_delay,
            jitter=_JITTER,
        )

    @property
    def timing(self) -> RelayTiming:
        return RelayTiming(send=self.timeout)


_OF_CALLBACKS: Rules = {
    "targets": _TARGETS,
    "hooks": (is_a(Mapping[str, Any]), "a map from names to origins"),
    "attempts": whole(1, MOST_ATTEMPTS),
    "delay": _up_to(LONGEST_DELAY_S),
    "backoff": (is_number(1, LARGEST_BACKOFF), f"a number from 1 to {LARGEST_BACKOFF:g}"),
    "max_delay": _up_to(LONGEST_DELAY_S),
    "timeout": _up_to(LONGEST_ATTEMPT_S, zero=False),
    "allow_private": _FLAG,
    "flush": _up_to(LONGEST_FLUSH_S),
}


class RelayTiming(Struct, frozen=True, kw_only=True):
    """Times of the relay in seconds; the duration of a claim follows from them."""

    send: float = 15.0
    """Time-out of an attempt in the sender."""
    begin: float = 10.0
    """How long a claimed callback may wait for a free slot."""
    margin: float = 2.5
    """For a sender that overruns its time-out, and for cancelling it before the claim ends."""
    poll: float = 1.0

    def __post_init__(self) -> None:
        names = self.__struct_fields__
        _refuse(broken(dict.fromkeys(names, MORE_SECONDS), self, names))

    @property
    def claim(self) -> float:
        return self.begin + self.send + 2 * self.margin

    def limits(self, sent_at: float) -> tuple[float, float]:
        """Loop times by which deliveries of a claim sent at ``sent_at`` must begin and end."""
        return sent_at + self.begin, sent_at + self.claim - self.margin


# Leases.


class LeaseRule(NamedTuple):
    """A condition on several lease options."""

    text: str
    why: str
    names: tuple[str, ...]
    fits: Callable[..., bool]

    def holds(self, values: Any) -> bool:
        """``values`` has an attribute for each name, in seconds."""
        return self.fits(*(getattr(values, name) for name in self.names))

    def broken_by(self, shown: Callable[[str], str]) -> str:
        """The message; ``shown`` returns the value of a name."""
        facts = (f"{name} is {shown(name)}" for name in self.names)
        return f"{self.text} does not hold: {', '.join(facts)}"


LEASE_RULES = (
    LeaseRule(
        "renew_interval ≤ lease_duration / 2",
        "one renewal may be lost without losing the run",
        ("renew_interval", "lease_duration"),
        lambda renew, lease: renew <= lease / 2,
    ),
    LeaseRule(
        "renew_interval < visibility_timeout ≤ lease_duration",
        "a broker's message stays hidden from one renewal to the next, and no longer than the "
        "lease it stands for",
        ("renew_interval", "visibility_timeout", "lease_duration"),
        lambda renew, hidden, lease: renew < hidden <= lease,
    ),
    LeaseRule(
        "poll_interval ≤ lease_duration / 8",
        "an abandoned run is found soon after its lease ended",
        ("poll_interval", "lease_duration"),
        lambda poll, lease: poll <= lease / 8,
    ),
)


def hidden_for(lease: float, renew: float) -> float:
    """The default of ``visibility_timeout``: half the lease, or longer if that is hardly more than
    a renewal interval. It obeys its rule whenever ``renew`` obeys the first one."""
    return min(max(lease / 2, renew * 1.5), lease)


def broken_together(values: Any) -> list[str]:
    """Messages for the lease rules that ``values`` breaks, of those whose names it has."""
    return [
        rule.broken_by(lambda name: f"{getattr(values, name):g}s")
        for rule in LEASE_RULES
        if all(hasattr(values, name) for name in rule.names) and not rule.holds(values)
    ]


class Timing(Struct, frozen=True, kw_only=True):
    """Times of leases, in seconds."""

    lease_duration: float = 60.0
    renew_interval: float = 20.0
    control_interval: float = 0.5
    margin: float | None = None
    """For ending tasks before the lease can expire. ``None``: eight seconds, at most a quarter of
    the lease."""

    def __post_init__(self) -> None:
        """``InvalidOptions`` names all invalid options."""
        given = _OF_LEASES if self.margin is not None else _OF_LEASES.keys() - {"margin"}
        _refuse(broken(_OF_LEASES, self, given) or broken_together(self))

    @property
    def trust(self) -> float:
        """Seconds a renewal is trusted for; at least one renewal may be missed."""
        margin = min(8.0, self.lease_duration / 4) if self.margin is None else self.margin
        return max(self.lease_duration - margin, self.renew_interval * 1.5)

    @property
    def pace(self) -> float:
        """Seconds between two polls of the store, at most."""
        return min(self.control_interval, self.renew_interval)


_OF_LEASES: Rules = {
    "lease_duration": MORE_SECONDS,
    "renew_interval": MORE_SECONDS,
    "control_interval": MORE_SECONDS,
    "margin": SECONDS,
}


# Retention.

_BATCHES_PER_SECOND = 4
_MAX_BATCH = 100
_IDLE_INTERVAL_S = 60.0
"""Until the next batch, once no old run is left."""


class PruneRate(NamedTuple):
    """A budget of runs removed per second."""

    per_second: int

    @property
    def batch(self) -> int:
        return max(1, min(_MAX_BATCH, self.per_second // _BATCHES_PER_SECOND))

    def seconds_for(self, removed: int) -> float:
        """Seconds of the budget used by a batch of ``removed`` runs, from its start."""
        return removed / self.per_second


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    seconds: float
    """How long a run is kept after its end."""
    per_second: int = 100
    """Runs that one process removes per second, at most."""

    def __post_init__(self) -> None:
        """``InvalidOptions`` names all invalid options."""
        _refuse(broken(_OF_RETENTION, self, _OF_RETENTION))

    @property
    def batch(self) -> int:
        return PruneRate(self.per_second).batch

    def wait_after(self, removed: int) -> float:
        """Seconds from the start of a batch that removed ``removed`` runs to the next."""
        if removed < self.batch:
            return min(_IDLE_INTERVAL_S, max(self.seconds, 1.0))
        return PruneRate(self.per_second).seconds_for(removed)


_OF_RETENTION: Rules = {
    "seconds": _up_to(MAX_AGE_SECONDS, zero=False),
    "per_second": whole(1, MOST_PRUNED_PER_S),
}
