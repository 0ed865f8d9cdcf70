from __future__ import annotations

import socket
from typing import Any, NoReturn

import pytest

from tests.notifiers.conftest import certificate, server_tls

__all__ = ["certificate", "server_tls"]


@pytest.fixture
def unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows any name. Whom this machine would ask takes long to say so."""

    def look_up(*asked: Any, **how: Any) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", look_up)
