"""Parameter types of the constructors of ``spec``, for type checkers.

``Step(timeout="30s")`` holds 30 seconds afterwards. Only parts that convert something are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from tenure.model.status import Recovery
    from tenure.workflow.spec import (
        CallbackSpec,
        Defaults,
        Handler,
        Inventory,
        OnTakeover,
        PlanMode,
        PlanSettings,
        Retries,
        Rolling,
        Verify,
    )

Duration = float | str
"""Seconds, or text as in a file."""


class RetriesGiven(TypedDict, total=False):
    max: int
    delay: Duration
    backoff: float
    max_delay: Duration


class VerifyGiven(TypedDict, total=False):
    timeout: Duration | None


class HandlerGiven(TypedDict, total=False):
    args: dict[str, Any]
    when: str | bool | None
    retries: Retries | int
    timeout: Duration | None
    become: str | None


class StepGiven(HandlerGiven, total=False):
    targets: Sequence[str]
    needs: Sequence[str] | None
    loop: Sequence[Any] | str | None
    continue_on_error: bool
    must_vars: Sequence[str]
    expect_vars: Sequence[str]
    notify: Sequence[str]
    concurrency: int | None
    rolling: Rolling | None
    verify: Verify | None
    on_takeover: OnTakeover | str | None


class DefaultsGiven(TypedDict, total=False):
    timeout: Duration | None
    concurrency: int
    on_takeover: OnTakeover | str | None


class PlanGiven(TypedDict, total=False):
    mode: PlanMode | str
    strategy: str
    approval_timeout: Duration | None


class WorkflowGiven(TypedDict, total=False):
    version: str
    description: str | None
    queue: str
    priority: int
    labels: dict[str, str]
    recovery: Recovery | str | None
    timeout: Duration | None
    secrets: Sequence[str]
    inventory: Inventory
    vars: dict[str, Any]
    defaults: Defaults
    callbacks: Sequence[CallbackSpec]
    plan: PlanSettings
    handlers: Sequence[Handler]
    env_packages: Sequence[str]
    validation_env: str | None
    tests: Sequence[Any]
