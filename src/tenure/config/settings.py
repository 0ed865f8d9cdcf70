"""The settings there are, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.workflow.spec import CallbackSpec

DEFAULT = "default"
JSON_LOGS = "json"


class Settings(Struct, frozen=True, kw_only=True):
    """Durations are seconds, sizes bytes. ``docs/reference/settings.md`` is made from the
    docstrings below."""

    store: str = ""
    """Where runs are kept: a store URL."""
    broker: str = ""
    """A broker URL (`redis://…`) that tells workers of new runs; without one they poll."""
    lease_duration: float = 60.0
    """How long a run waits for a worker that vanished with its machine."""
    renew_interval: float = 20.0
    """How often a worker renews its leases, all of them in one statement."""
    visibility_timeout: float = 30.0
    """How long a broker hides a message that was handed out. Unless it is set, half of
    `lease_duration`, and at least 1.5 `renew_interval`."""
    poll_interval: float = 1.0
    """How often a worker looks for runs where no notification arrives."""
    reconcile_interval: float = 5.0
    """How often abandoned runs with `recovery: interrupt` are looked for."""
    control_interval: float = 0.5
    """How long a cancel request waits where no notification arrives."""
    claim_batch: int = 10
    """Runs that a worker claims in one statement, at most."""
    max_takeovers: int = 5
    """A run that loses its worker more often in a row, with no host finished in between, ends as
    interrupted."""
    drain_timeout: float = 30.0
    """How long a worker that was told to stop lets its runs finish."""
    listen: str = "127.0.0.1:8080"
    """Address of the gateway: HOST:PORT."""
    gateway_rate: int = 500
    """Requests a second that one token may make; 0 means no limit."""
    log_format: str = "plain"
    """`plain` or `json`: one JSON object per line on stderr."""
    callbacks: tuple[CallbackSpec, ...] = ()
    """Targets told of every run: `[[callbacks]]` tables in the file."""
    callback_attempts: int = 8
    """Attempts in all, before a callback becomes a dead letter."""
    callback_delay: float = 5.0
    """Pause before the second attempt."""
    callback_backoff: float = 4.0
    """Each further pause is this many times the last."""
    callback_max_delay: float = 3600.0
    """The longest pause."""
    callback_timeout: float = 15.0
    """Time for one attempt, connecting included."""
    callback_allow_private: bool = False
    """Whether callback URLs of workflows and runs may reach loopback, link-local and private
    addresses."""
    callback_flush: float = 5.0
    """How long a finishing `run` waits for its callbacks; the rest stays in the outbox."""
    progress_interval: float = 0.0
    """Progress of running hosts within this time is written together. A status is never merged
    away."""
    summary_bytes: int = 4096
    """Size of the tails of stdout and stderr in the record."""
    log_cap: int = 10 * 1024 * 1024
    """Stored output per task and stream; what exceeds it is dropped and counted."""
    task_groups: bool = True
    """Whether each local task gets its own control group, where the system allows it."""
    retention: float = 0.0
    """How long a run is kept after its end; `0s` means for ever, else at least `1m`."""
    prune_rate: int = 100
    """Runs that one process removes in a second, at most."""
    sources: dict[str, str] = {}
    """Where each value that is not a default came from."""

    def source_of(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)


class InvalidSettings(TenureError, ValueError):
    """Settings that cannot work. ``problems`` are all that were found. ``settings`` are as far as
    they could be read; ``unread`` says where the others stand, which are at their defaults
    there."""

    def __init__(
        self, problems: list[str], settings: Settings, unread: Mapping[str, str] = {}
    ) -> None:
        self.problems = tuple(problems)
        self.settings = settings
        self.unread = dict(unread)
        super().__init__("\n".join(problems))
