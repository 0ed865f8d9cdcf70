"""Hints in Redis or Valkey.

Each queue has one stream with one consumer group, in which every process that takes hints is a
consumer, and one sorted set of the hints given back with a delay, by due time. Taking hints first
moves due ones into the stream, and takes over those that a consumer has held for longer than the
visibility time-out. An acknowledged hint is removed from the stream.

Times are the server's. Steps that have to be atomic are Lua scripts (``*.lua``); an answer counts
only while its consumer still holds the hint. Nothing needs to be set up, and all data may vanish at
any moment: missing streams and groups are created again when they are needed.
"""

from tenure.brokers.redis_streams.broker import RedisStreams

__all__ = ["RedisStreams"]
