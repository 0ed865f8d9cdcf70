"""Hints in Redis or Valkey.

For each queue one stream with one consumer group, of which each process that takes hints is a
consumer, and one sorted set for what was given back with a delay, by the moment it is due. Whoever
takes hints first moves what is due into the stream, and takes over what a consumer has held for
longer than the visibility time-out. An answered hint leaves the stream.

Times are the server's. What has to happen together is a script (``*.lua``), which the server runs
as one; answers count only while the hint is still held by who answers. Nothing needs to be set up,
and all of it may vanish at any moment: what is missing is made again by whoever misses it.
"""

from tenure.brokers.redis_streams.broker import RedisStreams

__all__ = ["RedisStreams"]
