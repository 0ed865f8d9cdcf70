"""Actions: Tenure's own, and how others are added.

An action has an ``ActionSpec``, which describes its arguments in a workflow, and executes tasks.
``commands`` has those that start a process, ``files`` those that put a file on a host, ``http``,
``wait`` and ``env`` the others; ``python`` calls functions, ``registry`` finds actions and makes
them of functions (``@action``).

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
