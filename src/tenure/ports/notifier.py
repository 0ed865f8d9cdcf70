"""Telling the application that embeds Tenure."""

from __future__ import annotations

from typing import Protocol

from tenure.wire.callback import CallbackPayload


class RunStateNotifier(Protocol):
    async def notify(self, payload: CallbackPayload) -> None:
        """Called for every status of the run, of its steps and hosts, in order of
        (version, seq), after the change is durable. Raising never changes the run."""
        ...
