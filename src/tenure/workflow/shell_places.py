"""Where in a shell script a value can stand, and what the script says there instead of it."""

from __future__ import annotations

from enum import Enum


class Place(Enum):
    """Where a value stands. Some are no place for one: they say why, and what to do instead."""

    WORD = "word"
    QUOTED = "quoted"
    """Inside double quotes or a here-document: expanded, and not split into words."""
    COMMENT = "comment"
    SINGLE = (
        "a value inside single quotes would not be expanded",
        "use double quotes, or pass it by name: the variables are in the environment",
    )
    FIXED_DOCUMENT = (
        "a value in a here-document whose mark is quoted would not be expanded",
        "take the quotes off the mark: <<EOF",
    )
    ESCAPED = ("a value after a backslash would not be expanded", "write $${{ for the text ${{")
    BACKTICKS = ("a value inside backticks cannot be quoted safely", "use $(…) instead")
    BRACES = ("a value inside ${ …; } could run code", "use $(…) instead")
    ARITHMETIC = (
        "a value inside shell arithmetic could run code",
        "do the sum in the expression: ${{ count + 1 }}",
    )
    PRINTED = (
        "a value in a command inside shell arithmetic could be printed by it, and what it prints "
        "is evaluated and could run code",
        "keep what it prints, and look that it is a number before you count with it: "
        "n=$(…); case $n in '' | *[!0-9]*) exit 1 ;; esac; $((n + 1))",
    )
    """However harmless the command looks: a function or another program may have its name."""
    OFFSET = (
        "a value as an offset in ${name:offset:length} could run code",
        "cut the text in the expression: ${{ name[2:5] }}",
    )
    INDEX = (
        "a value as an index of a shell array could run code",
        "take the element in the expression: ${{ names[index] }}",
    )
    COMPARED = (
        "a value that [[ … ]] compares as a number could run code",
        "write [ … ], which compares numbers and evaluates nothing",
    )
    NAME = (
        "a value where the shell takes the name of a variable could run code",
        "write out the name, and the operator or format before it: [ -n … ], printf %s …",
    )
    DECLARED = (
        "a value for a shell variable that is a number, an array or a reference could run code",
        "give it to a plain variable, and do sums in the expression: ${{ count + 1 }}",
    )

    @property
    def unfit(self) -> tuple[str, str] | None:
        return self.value if isinstance(self.value, tuple) else None

    @property
    def evaluated(self) -> bool:
        """Whether bash would evaluate what a reference expands to, however it is quoted."""
        return self in _EVALUATED


_EVALUATED = frozenset(
    {
        Place.BRACES,
        Place.ARITHMETIC,
        Place.PRINTED,
        Place.OFFSET,
        Place.INDEX,
        Place.COMPARED,
        Place.NAME,
        Place.DECLARED,
    }
)


def reference(place: Place, variable: str) -> str:
    """What the script says at ``place`` instead of the value: one word, whatever it holds."""
    return f'"${{{variable}}}"' if place is Place.WORD else f"${{{variable}}}"
