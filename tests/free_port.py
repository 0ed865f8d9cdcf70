"""A port for a server that begins to listen a moment later, and may end and begin again.

One that the system would choose is also one that it may give away meanwhile, to whoever connects
anywhere: those are left out.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 10_000


def free_port() -> int:
    choice = random.SystemRandom()  # others choose at the same time, perhaps with the same seed
    while True:
        port = choice.randrange(_FIRST, _first_given_away())
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _first_given_away() -> int:
    if not _GIVEN_AWAY.exists():
        return 32768
    return max(int(_GIVEN_AWAY.read_text().split()[0]), _FIRST + 1000)
