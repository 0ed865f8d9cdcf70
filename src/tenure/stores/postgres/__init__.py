"""The shared store: many workers on many machines, every commit on the server's disk."""

from tenure.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
