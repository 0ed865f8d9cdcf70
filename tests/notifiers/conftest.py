from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure.notifiers.http import HttpSender, HttpSettings
from tests.notifiers.deliveries import ENVIRON, HERE, AnySigning, NewSender
from tests.notifiers.receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def new_sender(receiver: Receiver) -> AsyncIterator[NewSender]:
    """Makes senders, closes them, and sees that none leaves a connection behind."""
    async with AsyncExitStack() as closing:

        def new(settings: HttpSettings = HERE, **parts: Any) -> HttpSender:
            sender = HttpSender(settings, **{"environ": ENVIRON, "signing": AnySigning(), **parts})
            closing.push_async_callback(sender.close)
            return sender

        yield new
    await receiver.alone()


@pytest.fixture
def sender(new_sender: NewSender) -> HttpSender:
    return new_sender()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For ``localhost`` and no other host, signed by itself; the key is in the same file."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(path), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )
    yield path
    path.unlink()


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusting_tls(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))
