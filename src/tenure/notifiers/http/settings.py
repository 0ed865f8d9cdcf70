"""What bounds an attempt."""

from __future__ import annotations

from msgspec import Struct


class HttpSettings(Struct, frozen=True, kw_only=True):
    """Times are seconds, sizes bytes."""

    total_timeout: float = 15.0
    """For the whole attempt, the wait for a free connection included."""
    connect_timeout: float = 5.0
    """For each address that is tried, TLS included."""
    read_timeout: float = 1.0
    """For the rest of an answer once its status is known."""
    response_bytes: int = 16 * 1024
    """What is read of an answer behind its head, as it comes over the wire."""
    connections: int = 256
    """Idle ones included."""
    connections_per_host: int = 64
    """Fewer than in all: a host that hangs must not use up what others need."""
    allow_private: bool = False
    """Whether callbacks may go to addresses inside our own network."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name != "allow_private" and not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than zero, not {getattr(self, name)}")
