"""How a refusal says which step, host or item it is about."""

from __future__ import annotations

from tenure.model.snapshot import StepState


class Wrong(Exception):
    """What is wrong with a host or an item; the caller knows whose it is."""

    place = ""


def label(step: StepState) -> str:
    return f"step {step.index} ({step.name})" if step.name else f"step {step.index}"
