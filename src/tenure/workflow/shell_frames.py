"""What stands around a place in a shell script: quotes, substitutions, parentheses."""

from __future__ import annotations

from msgspec import Struct, field

from tenure.workflow.shell_places import Place
from tenure.workflow.shell_words import Word

WITH_WORDS = frozenset({"code", "test", "array", "backtick"})
WITHIN_WORD = frozenset({"double", "subscript"})
IN_PARAMETER = {"index": Place.INDEX, "offset": Place.OFFSET, "braces": Place.BRACES}


class Frame(Struct):
    """One level of nesting: what closes it, and how its inside is read."""

    kind: str
    """code, test (``[[``), array, backtick: with words of their own. double, subscript: within a
    word. parameter, arithmetic, old (``$[``), document."""
    depth: int = 0
    """Open parentheses or brackets, open ``case`` in code."""
    quoted: bool = False
    """Whether it stands inside double quotes (or a here-document) itself."""
    in_word: bool = False
    """Whether the word it stands in goes on after it."""
    word: Word = field(default_factory=Word)
    words: list[Word] = []
    """Of the command, before ``word``."""
    leads: bool = True
    """Whether ``word`` is where a command may begin."""
    redirects: bool = False
    """Whether ``word`` is what comes after ``>`` and the like."""
    part: str = "name"
    """Of a parameter: name, index, offset, text, braces."""
    name: str = ""
    first: int = 0
    """How many values of the word stand before a subscript."""
