"""SQLite: the embedded default, durable, for any number of processes on one machine."""

from tenure.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
