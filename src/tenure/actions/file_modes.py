"""File modes as people write them, and as ``ls`` shows them."""

from __future__ import annotations

import re
from typing import Any

from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.catalogue import Argument, Form
from tenure.workflow.wording import quoted

MOST = 0o7777
_DIGITS = re.compile(r"0?[0-7]{3,4}", re.ASCII)
_LETTERS = re.compile(r"[-bcdlps]([-r][-w][-xsS])([-r][-w][-xsS])([-r][-w][-xtT])")


def read_mode(value: Any) -> int:
    """``ValueError`` if it may mean something else than what it says.

    Text is octal, whether it begins with a zero or not. A number was octal in the file if it was
    written with a zero: ``0644`` comes here as 420. Without one (``644``) it is a slip that would
    set an odd mode; a number whose digits look like a mode of their own is therefore refused.
    """
    if isinstance(value, str):
        mode = int(value, 8) if _DIGITS.fullmatch(value) else -1
        if mode < 0 or not (value.startswith("0") or _usual(mode)):
            raise ValueError(f"{quoted(value, 20)} is no file mode")
        return mode
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError("no file mode")
    digits = str(value)
    if value != 0o777 and _DIGITS.fullmatch(digits) and _usual(int(digits, 8)):
        raise ValueError(f"the number {value} may be meant as 0{value} or as {show_mode(value)}")
    return value


def _usual(mode: int) -> bool:
    """The owner may read, and nobody may more than those before him."""
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    return bool(owner & 4) and not group & ~owner and not others & ~group


def _readable(value: Any) -> bool:
    try:
        read_mode(value)
    except ValueError:
        return False
    return True


_FORM = Form(
    called='an octal file mode in quotes, like "0644"',
    fits=_readable,
    pattern="^0?[0-7]{3,4}$",
)
MODE = Argument(
    name="mode",
    types=("string", "integer"),
    form=_FORM,
    description='Octal, in quotes: "0644". Without it a file keeps the mode it has, and a new one '
    "gets what the host gives new files.",
)


def mode_of(task: Task) -> int | None:
    """``InvalidArguments``."""
    given = task.args.get("mode")
    if given is not None and not _readable(given):
        raise InvalidArguments(f"mode must be {_FORM.called}")
    return None if given is None else read_mode(given)


def show_mode(mode: int) -> str:
    return f"{mode:04o}"


def mode_in(listing: str) -> int | None:
    """Of the letters ``ls -l`` begins a line with; ``None`` if these are none."""
    found = _LETTERS.match(listing)
    if found is None:
        return None
    mode = 0
    for place, letters in enumerate(found.groups()):
        bits = 4 * (letters[0] == "r") + 2 * (letters[1] == "w") + (letters[2] in "xst")
        special = (0o4000 >> place) * (letters[2] in "sStT")
        mode = mode | special | bits << 3 * (2 - place)
    return mode
