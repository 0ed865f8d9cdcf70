"""The settings there are, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tenure.model.errors import TenureError
from tenure.workflow.spec import CallbackSpec

DEFAULT = "default"
JSON_LOGS = "json"


class Settings(Struct, frozen=True, kw_only=True):
    """Durations are seconds, sizes bytes."""

    store: str = ""
    broker: str = ""
    """Where hints go; empty: workers only look."""
    lease_duration: float = 60.0
    renew_interval: float = 20.0
    visibility_timeout: float = 30.0
    """As read: unless it is said, it follows from the two above."""
    poll_interval: float = 1.0
    reconcile_interval: float = 5.0
    control_interval: float = 0.5
    claim_batch: int = 10
    max_takeovers: int = 5
    drain_timeout: float = 30.0
    listen: str = "127.0.0.1:8080"
    """Where the gateway is."""
    gateway_rate: int = 500
    """Requests a second that one token may make; zero: any number."""
    log_format: str = "plain"
    """``json``: what a process says on stderr is one object a line."""
    callbacks: tuple[CallbackSpec, ...] = ()
    """Told of every run."""
    callback_attempts: int = 8
    callback_delay: float = 5.0
    callback_backoff: float = 4.0
    callback_max_delay: float = 3600.0
    callback_timeout: float = 15.0
    callback_allow_private: bool = False
    callback_flush: float = 5.0
    progress_interval: float = 0.0
    summary_bytes: int = 4096
    log_cap: int = 10 * 1024 * 1024
    task_groups: bool = True
    """Each local task in a control group of its own, where the system allows it."""
    retention: float = 0.0
    """How long a run is kept after its end; zero: for ever."""
    prune_rate: int = 100
    """Runs that one process removes in a second, at most."""
    sources: dict[str, str] = {}
    """Where each value that is not a default came from."""

    def source_of(self, name: str) -> str:
        return self.sources.get(name, DEFAULT)


class InvalidSettings(TenureError, ValueError):
    """Settings that cannot work. ``problems`` are all that were found. ``settings`` are as far as
    they could be read, for whoever looks for the reason; ``unread`` says where the others stand,
    which are at their defaults there."""

    def __init__(
        self, problems: list[str], settings: Settings, unread: Mapping[str, str] = {}
    ) -> None:
        self.problems = tuple(problems)
        self.settings = settings
        self.unread = dict(unread)
        super().__init__("\n".join(problems))
