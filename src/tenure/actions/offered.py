"""Which actions there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isclass, isfunction, ismodule
from typing import Any, cast

from tenure.actions.builtin import MODULES
from tenure.actions.decorator import DECLARED
from tenure.model.errors import InvalidAction, UnknownAction
from tenure.ports.action import Action
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.wording import did_you_mean

ENTRY_POINTS = "tenure.actions"

_log = logging.getLogger("tenure")


class ActionRegistry(Mapping[str, Action]):
    """Actions by name: what was registered here, Tenure's own, those declared with ``@action``,
    and those of installed packages.

    A package names under the entry-point group ``tenure.actions`` an action, a class of one, or a
    module whose functions are decorated. Packages are loaded when a name is asked for that nothing
    else offers, or when all are listed. One that cannot be loaded is reported, once, and does not
    harm the others.
    """

    def __init__(self, *, plugins: bool = True) -> None:
        self._actions: dict[str, Action] = {}
        self._failed: list[str] = []
        self._plugins_wanted = plugins

    def register(self, action: Action) -> None:
        """``InvalidAction`` if its name is taken."""
        name = action.spec.name
        if name in MODULES:
            raise InvalidAction(f"action {name!r} is one of Tenure's own; choose another name")
        taken = self._taken(name)
        if taken is not None:
            raise InvalidAction(f"action {name!r} is taken by {taken}; choose another name")
        self._actions[name] = action

    def catalogue(self) -> Catalogue:
        """What is known of them before anything runs."""
        return {name: action.spec for name, action in self.items()}

    def __getitem__(self, name: str) -> Action:
        found = self._taken(name)
        if found is not None:
            return found
        if name in MODULES:
            own = cast("Action", import_module(MODULES[name]).ACTION)
            self._actions[name] = own
            return own
        if self._load_plugins():
            return self[name]
        raise UnknownAction(self._not_found(name))

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted({*self._actions, *DECLARED, *MODULES}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _taken(self, name: str) -> Action | None:
        found = self._actions.get(name)
        return DECLARED.get(name) if found is None else found

    def _not_found(self, name: str) -> str:
        near = did_you_mean(str(name), self)
        hints = [near] if near else [f"there are: {', '.join(self)}"]
        hints.extend(self._failed)
        return f"there is no action {name!r}; {'; '.join(hints)}"

    def _load_plugins(self) -> bool:
        """Whether it was not done before."""
        if not self._plugins_wanted:
            return False
        self._plugins_wanted = False
        for entry in entry_points(group=ENTRY_POINTS):
            try:
                self._take(entry.load())
            except Exception as error:  # noqa: BLE001 - a package may raise anything
                told = f"the plugin {entry.name} ({entry.value}) cannot be used: {error}"
                self._failed.append(told)
                _log.warning("%s", told)
        return True

    def _take(self, loaded: Any) -> None:
        if ismodule(loaded) or (isfunction(loaded) and _declared(loaded)):
            return
        found: Any = loaded() if isclass(loaded) else loaded
        if not hasattr(found, "spec") or not hasattr(found, "apply"):
            raise InvalidAction(f"{loaded!r} is no action, no class of one and no module of some")
        self.register(found)


def _declared(function: Any) -> bool:
    return any(action.function is function for action in DECLARED.values())
