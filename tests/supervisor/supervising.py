"""Supervisors as a test sees and spoils them."""

from __future__ import annotations

import pytest

from tenure.transports.supervisor import client
from tests.transports.keeping import children, tasks


def supervisors() -> set[int]:
    return set(children()) - tasks()


def begin_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Supervisors started from now on run this before anything else of theirs."""
    boot = client.BOOT.replace("\nmain()", f"\n{code}\nmain()")
    assert boot != client.BOOT
    monkeypatch.setattr(client, "BOOT", boot)


NO_CGROUPS = """
from tenure.transports.supervisor import program
program.own_group = lambda: None
"""
MAY_NOT_SIGNAL = """
import os, signal
def refusing(send):
    def refuse(*where_and_what):
        send(*where_and_what[:-1], 0)  # who is not there cannot refuse
        raise PermissionError(1, "Operation not permitted")
    return refuse
os.kill, os.killpg = refusing(os.kill), refusing(os.killpg)
signal.pidfd_send_signal = refusing(signal.pidfd_send_signal)
"""
