"""What steps can do: Tenure's own actions, one per file, and how others are added.

An own action is a value called ``ACTION`` in its module: an ``ActionSpec`` that says what a
workflow file may write, and what to do. Those that start a process only build a ``Command`` from
a ``Task``; ``commands`` runs it, watches its output and judges its end. Those that bring a file
only say which; ``placing`` looks what is there and does what is missing. ``decorator`` makes
actions of Python functions.

Modules are loaded when an action is looked up, so that this package costs nothing to import.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.actions.registry import ActionRegistry


@cache
def new_registry() -> ActionRegistry:
    """This program's actions: Tenure's own, those of installed packages, those made with
    ``@tenure.action``, and what was registered here."""
    from tenure.actions.registry import ActionRegistry

    return ActionRegistry()
