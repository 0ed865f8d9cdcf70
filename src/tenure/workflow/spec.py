"""A workflow as a value, parsed from a file or built in Python.

Constructors accept what a file may say: ``timeout="30s"`` or a number of seconds, ``retries=3`` or
``Retries(…)``, lists for tuples. They hold seconds and tuples afterwards. Whether names exist and
fit together is checked by ``check_workflow``. The mappings inside are plain dicts for speed: treat
them as read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct
from msgspec.structs import force_setattr

from tenure.model.errors import InvalidWorkflow, Mistake
from tenure.model.retry_policy import RetryPolicy
from tenure.model.status import Recovery, plain_members
from tenure.workflow.durations import parse_duration

if TYPE_CHECKING:
    from tenure.workflow import given

DEFAULT_CONCURRENCY = 50
LIST_FIELDS = frozenset(
    {
        "callbacks",
        "env_packages",
        "events",
        "expect_vars",
        "handlers",
        "hosts",
        "loop",
        "must_vars",
        "needs",
        "notify",
        "secrets",
        "steps",
        "targets",
        "tests",
    }
)
DURATION_FIELDS = frozenset({"approval_timeout", "delay", "max_delay", "timeout"})


@plain_members
class OnTakeover(StrEnum):
    """What to do with a task that was running when its owner died, and whose end is unknown."""

    RERUN = "rerun"
    VERIFY = "verify"
    ASK = "ask"
    FAIL = "fail"


@plain_members
class PlanMode(StrEnum):
    AUTO = "auto"
    MANUAL_APPROVE = "manual-approve"


_ENUM_FIELDS: dict[str, type[StrEnum]] = {
    "mode": PlanMode,
    "on_takeover": OnTakeover,
    "recovery": Recovery,
}


class _Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in LIST_FIELDS and isinstance(value, list):
                force_setattr(self, name, tuple(value))
            elif name in DURATION_FIELDS and isinstance(value, str | int):
                force_setattr(self, name, _seconds(name, value))
            elif name in _ENUM_FIELDS and value in tuple(_ENUM_FIELDS[name]):
                force_setattr(self, name, _ENUM_FIELDS[name](value))


def _seconds(name: str, value: str | int) -> float:
    try:
        return parse_duration(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise InvalidWorkflow([Mistake(path=name, message=str(error))]) from error


class HostSpec(_Part, frozen=True, kw_only=True, omit_defaults=True):
    address: str | None = None
    """``local``, ``ssh://user@host:port``, ``http://host:port``; ``None``: the host's name."""
    vars: dict[str, Any] = {}


class GroupSpec(_Part, frozen=True, kw_only=True, omit_defaults=True):
    hosts: Sequence[str] = ()
    """May name hosts that are not listed elsewhere."""
    vars: dict[str, Any] = {}


class Inventory(_Part, frozen=True, kw_only=True, omit_defaults=True):
    hosts: dict[str, HostSpec] = {}
    groups: dict[str, GroupSpec] = {}
    vars: dict[str, Any] = {}


class Retries(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """``max`` further attempts after the first."""

    max: int = 0
    delay: float = 0.0
    backoff: float = 1.0
    max_delay: float = 3600.0

    if TYPE_CHECKING:

        def __init__(self, **rest: Unpack[given.RetriesGiven]) -> None: ...

    @property
    def policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts=self.max + 1,
            delay=self.delay,
            backoff=self.backoff,
            max_delay=self.max_delay,
        )


class Rolling(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Runs batch after batch, within a budget of failures for the whole step.

    Each number is an amount (``5``) or a share of the step's hosts (``"25%"``), rounded down; a
    batch has at least one host. With more than ``max_failures`` failed hosts no further host is
    started.
    """

    batch: int | str = 1
    max_failures: int | str = 0
    max_unreachable: int | str | None = None
    """A separate budget for unreachable hosts; ``None``: they count as failures."""

    def batch_size(self, hosts: int) -> int:
        return max(1, _amount(self.batch, hosts))

    def failure_budget(self, hosts: int) -> int:
        return _amount(self.max_failures, hosts)

    def unreachable_budget(self, hosts: int) -> int | None:
        return None if self.max_unreachable is None else _amount(self.max_unreachable, hosts)


def _amount(given: int | str, hosts: int) -> int:
    if isinstance(given, int):
        return given
    return int(given.strip().removesuffix("%")) * hosts // 100


class Verify(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A command that checks whether the step's work is done: exit code 0 means yes."""

    cmd: str
    timeout: float | None = None

    if TYPE_CHECKING:

        def __init__(self, *, cmd: str, **rest: Unpack[given.VerifyGiven]) -> None: ...


class _Work(_Part, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    action: str
    args: dict[str, Any] = {}
    when: str | None = None
    retries: Retries = Retries()
    timeout: float | None = None
    become: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        retries: object = self.retries
        when: object = self.when
        if isinstance(retries, int):
            force_setattr(self, "retries", Retries(max=retries))
        if isinstance(when, bool):
            force_setattr(self, "when", "true" if when else "false")


class Handler(_Work, frozen=True, kw_only=True, omit_defaults=True):
    """Runs on the same hosts after a step that names it in ``notify``."""

    if TYPE_CHECKING:

        def __init__(
            self, *, name: str, action: str, **rest: Unpack[given.HandlerGiven]
        ) -> None: ...


class Step(_Work, frozen=True, kw_only=True, omit_defaults=True):
    targets: Sequence[str] = ()
    """Hosts and groups; none: all hosts."""
    needs: Sequence[str] | None = None
    """Steps to wait for; ``None``: the one above; empty: none."""
    loop: Sequence[Any] | str | None = None
    """Items, or one ``${{ expression }}`` that gives a list."""
    continue_on_error: bool = False
    must_vars: Sequence[str] = ()
    expect_vars: Sequence[str] = ()
    notify: Sequence[str] = ()
    concurrency: int | None = None
    rolling: Rolling | None = None
    verify: Verify | None = None
    on_takeover: OnTakeover | None = None

    if TYPE_CHECKING:

        def __init__(self, *, name: str, action: str, **rest: Unpack[given.StepGiven]) -> None: ...


class Defaults(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Defaults of steps and handlers."""

    timeout: float | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    on_takeover: OnTakeover | None = None

    if TYPE_CHECKING:

        def __init__(self, **rest: Unpack[given.DefaultsGiven]) -> None: ...


class PlanSettings(_Part, frozen=True, kw_only=True, omit_defaults=True):
    mode: PlanMode = PlanMode.AUTO
    strategy: str = "sequential"
    approval_timeout: float | None = None

    if TYPE_CHECKING:

        def __init__(self, **rest: Unpack[given.PlanGiven]) -> None: ...


class CallbackSpec(_Part, frozen=True, kw_only=True, omit_defaults=True):
    url: str
    events: Sequence[str] = ("run",)
    secret_env: str | None = None
    headers: dict[str, str] = {}


class Workflow(_Part, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    steps: Sequence[Step]
    version: str = "v1"
    description: str | None = None
    queue: str = "default"
    priority: int = 0
    labels: dict[str, str] = {}
    recovery: Recovery | None = None
    """``None``: the default of the command that starts it."""
    timeout: float | None = None
    secrets: Sequence[str] = ()
    inventory: Inventory = Inventory()
    vars: dict[str, Any] = {}
    defaults: Defaults = Defaults()
    callbacks: Sequence[CallbackSpec] = ()
    plan: PlanSettings = PlanSettings()
    handlers: Sequence[Handler] = ()
    env_packages: Sequence[str] = ()
    """This and the next two are accepted from older files and have no effect."""
    validation_env: str | None = None
    tests: Sequence[Any] = ()

    if TYPE_CHECKING:

        def __init__(
            self, *, name: str, steps: Sequence[Step], **rest: Unpack[given.WorkflowGiven]
        ) -> None: ...
