"""Tenure: multi-step workflows over many hosts; every run outlives the process that started it.

    async with tenure.Runner(store="sqlite:///runs.db") as runner:
        run = await runner.run(tenure.load_workflow("deploy.yaml"))
        print(run.status)

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

from tenure._version import __version__

TYPE_CHECKING = False  # what typing's own is at run time, without the cost of importing it
if TYPE_CHECKING:
    from typing import Any

    from tenure.actions.registry import action as action
    from tenure.bootstrap import open_store as open_store
    from tenure.model.errors import InvalidOptions as InvalidOptions
    from tenure.model.errors import InvalidRunId as InvalidRunId
    from tenure.model.errors import InvalidTransition as InvalidTransition
    from tenure.model.errors import InvalidWorkflow as InvalidWorkflow
    from tenure.model.errors import KeyReused as KeyReused
    from tenure.model.errors import LeaseHeld as LeaseHeld
    from tenure.model.errors import LeaseLost as LeaseLost
    from tenure.model.errors import NotPermitted as NotPermitted
    from tenure.model.errors import NotRunnable as NotRunnable
    from tenure.model.errors import RunExists as RunExists
    from tenure.model.errors import RunnerClosed as RunnerClosed
    from tenure.model.errors import RunNotFound as RunNotFound
    from tenure.model.errors import StoreError as StoreError
    from tenure.model.errors import StoreRejected as StoreRejected
    from tenure.model.errors import StoreUnavailable as StoreUnavailable
    from tenure.model.errors import TenureError as TenureError
    from tenure.model.errors import VersionConflict as VersionConflict
    from tenure.model.query import Page as Page
    from tenure.model.query import RunFilter as RunFilter
    from tenure.model.snapshot import RunSnapshot as RunSnapshot
    from tenure.model.snapshot import RunSummary as RunSummary
    from tenure.model.status import HostStatus as HostStatus
    from tenure.model.status import Recovery as Recovery
    from tenure.model.status import RunStatus as RunStatus
    from tenure.model.status import StepStatus as StepStatus
    from tenure.model.update import RecordedEvent as RecordedEvent
    from tenure.ports.callbacks import RunStateNotifier as RunStateNotifier
    from tenure.ports.execution import Recorder as Recorder
    from tenure.ports.execution import Task as Task
    from tenure.ports.execution import TaskResult as TaskResult
    from tenure.ports.store import RunStateStore as RunStateStore
    from tenure.runner import RetryOptions as RetryOptions
    from tenure.runner import Runner as Runner
    from tenure.runner import RunOptions as RunOptions
    from tenure.runtime.options import CallbackSettings as CallbackSettings
    from tenure.runtime.options import RetentionPolicy as RetentionPolicy
    from tenure.runtime.options import Timing as Timing
    from tenure.runtime.writer import RunTracker as RunTracker
    from tenure.stores.file import FileStore as FileStore
    from tenure.stores.memory import InMemoryStore as InMemoryStore
    from tenure.wire.callbacks import CallbackPayload as CallbackPayload
    from tenure.worker import Pace as Pace
    from tenure.worker import Worker as Worker
    from tenure.workflow.spec import CallbackSpec as CallbackSpec
    from tenure.workflow.spec import Defaults as Defaults
    from tenure.workflow.spec import GroupSpec as GroupSpec
    from tenure.workflow.spec import Handler as Handler
    from tenure.workflow.spec import HostSpec as HostSpec
    from tenure.workflow.spec import Inventory as Inventory
    from tenure.workflow.spec import OnTakeover as OnTakeover
    from tenure.workflow.spec import PlanMode as PlanMode
    from tenure.workflow.spec import PlanSettings as PlanSettings
    from tenure.workflow.spec import Retries as Retries
    from tenure.workflow.spec import Rolling as Rolling
    from tenure.workflow.spec import Step as Step
    from tenure.workflow.spec import Verify as Verify
    from tenure.workflow.spec import Workflow as Workflow
    from tenure.workflow_file import WorkflowFile as WorkflowFile
    from tenure.workflow_file import load_workflow as load_workflow
    from tenure.workflow_file import read_workflow as read_workflow

_HOME = {
    "open_store": "bootstrap",
    "action": "actions.registry",
    "InvalidWorkflow": "model.errors",
    "RecordedEvent": "model.update",
    "HostStatus": "model.status",
    "StepStatus": "model.status",
    "Task": "ports.execution",
    "TaskResult": "ports.execution",
    "RunStateNotifier": "ports.callbacks",
    "Recorder": "ports.execution",
    "RetryOptions": "runner",
    "RunOptions": "runner",
    "Runner": "runner",
    "CallbackSettings": "runtime.options",
    "Timing": "runtime.options",
    "RetentionPolicy": "runtime.options",
    "RunTracker": "runtime.writer",
    "CallbackPayload": "wire.callbacks",
    "CallbackSpec": "workflow.spec",
    "Defaults": "workflow.spec",
    "GroupSpec": "workflow.spec",
    "Handler": "workflow.spec",
    "HostSpec": "workflow.spec",
    "Inventory": "workflow.spec",
    "OnTakeover": "workflow.spec",
    "PlanMode": "workflow.spec",
    "PlanSettings": "workflow.spec",
    "Retries": "workflow.spec",
    "Rolling": "workflow.spec",
    "Step": "workflow.spec",
    "Verify": "workflow.spec",
    "Workflow": "workflow.spec",
    "Pace": "worker",
    "Worker": "worker",
    "WorkflowFile": "workflow_file",
    "load_workflow": "workflow_file",
    "read_workflow": "workflow_file",
    "InvalidOptions": "model.errors",
    "InvalidRunId": "model.errors",
    "InvalidTransition": "model.errors",
    "KeyReused": "model.errors",
    "LeaseHeld": "model.errors",
    "LeaseLost": "model.errors",
    "NotPermitted": "model.errors",
    "NotRunnable": "model.errors",
    "RunExists": "model.errors",
    "RunNotFound": "model.errors",
    "RunnerClosed": "model.errors",
    "StoreError": "model.errors",
    "StoreRejected": "model.errors",
    "StoreUnavailable": "model.errors",
    "TenureError": "model.errors",
    "VersionConflict": "model.errors",
    "Page": "model.query",
    "RunFilter": "model.query",
    "RunSnapshot": "model.snapshot",
    "RunSummary": "model.snapshot",
    "Recovery": "model.status",
    "RunStatus": "model.status",
    "RunStateStore": "ports.store",
    "FileStore": "stores.file",
    "InMemoryStore": "stores.memory",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tenure' has no attribute {name!r}")
    value = getattr(import_module(f"tenure.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
