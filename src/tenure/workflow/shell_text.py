"""Where in a shell script a value stands, and so how a reference to it must be written there.

A reference is expanded by the shell, so it is of no use inside single quotes, and of danger where
bash evaluates what it finds: in arithmetic, however deep a value stands in it. ``shell_scanner``
knows sh's and bash's quoting, ``shell_documents`` their here-documents; ``shell_commands`` puts
together what the words of a command are, and ``shell_words`` says which of these are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.workflow.shell_places import Place
from tenure.workflow.shell_scanner import Scanner
from tenure.workflow.shell_units import Unit
from tenure.workflow.templates import Part


def places_in(parts: Sequence[Part]) -> list[Place]:
    """One place for each value among ``parts``, in order."""
    units: list[Unit] = []
    values = 0
    for part in parts:
        if isinstance(part, str):
            units += part
        else:
            units.append(values)
            values += 1
    places = [Place.WORD] * values
    Scanner(units, places).scan()
    return places
