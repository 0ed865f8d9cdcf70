"""Tenure: multi-step workflows over many hosts; every run outlives the process that started it.

    >>> import tenure
    >>> store = tenure.open_store("sqlite:///runs.db")

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

from tenure._version import __version__

TYPE_CHECKING = False  # what typing's own is at run time, without the cost of importing it
if TYPE_CHECKING:
    from typing import Any

    from tenure.bootstrap import open_store as open_store
    from tenure.model.errors import InvalidRunId as InvalidRunId
    from tenure.model.errors import InvalidTransition as InvalidTransition
    from tenure.model.errors import LeaseHeld as LeaseHeld
    from tenure.model.errors import LeaseLost as LeaseLost
    from tenure.model.errors import NotRunnable as NotRunnable
    from tenure.model.errors import RunExists as RunExists
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
    from tenure.model.status import RunStatus as RunStatus
    from tenure.ports.run_store import RunStateStore as RunStateStore
    from tenure.stores.file import FileStore as FileStore
    from tenure.stores.memory import InMemoryStore as InMemoryStore

_HOME = {
    "open_store": "bootstrap",
    "InvalidRunId": "model.errors",
    "InvalidTransition": "model.errors",
    "LeaseHeld": "model.errors",
    "LeaseLost": "model.errors",
    "NotRunnable": "model.errors",
    "RunExists": "model.errors",
    "RunNotFound": "model.errors",
    "StoreError": "model.errors",
    "StoreRejected": "model.errors",
    "StoreUnavailable": "model.errors",
    "TenureError": "model.errors",
    "VersionConflict": "model.errors",
    "Page": "model.query",
    "RunFilter": "model.query",
    "RunSnapshot": "model.snapshot",
    "RunSummary": "model.snapshot",
    "RunStatus": "model.status",
    "RunStateStore": "ports.run_store",
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
