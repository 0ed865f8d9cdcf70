"""Which words of a command bash evaluates, though each is one word and quoted.

Arithmetic runs the ``$(…)`` in ``a[$(…)]``, also when a variable holds it. ``let`` and
``declare -i`` do sums, ``[[ … ]]`` compares numbers, and ``read`` and its like take the name of a
variable, which may have such an index. Commands that are there to run text are not looked at:
``eval``, ``trap``, ``sh -c``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from tenure.workflow.shell_places import Place

VALUE = "\0"
"""Stands for a value in the text of a word."""
ARRAY = "\1"
"""Stands for the ``(…)`` in ``name=(…)``, whose elements are words of their own."""
EVALUATED_WHEN_SET = frozenset({"RANDOM", "SRANDOM", "OPTIND", "HISTCMD"})
"""Variables of bash that are numbers without having been declared."""

_LONG_ENOUGH = 1000
"""For names and options; what a word goes on with is of no interest."""
_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_BEFORE_COMMAND = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "coproc"}
)
_ASSIGNMENT = re.compile(r"(\w+)(?:\[.*\])?\+?=", re.ASCII | re.DOTALL)
_OPTIONS_WITH_A_WORD = {"read": "adinNptu", "wait": "p", "unset": ""}


class Word(Struct):
    text: str = ""
    """Without its quotes; ``VALUE`` for a value, ``$`` for whatever else the shell puts there."""
    begun: bool = False
    quoted: bool = False
    values: list[tuple[int, int]] = []
    """How much text stood before each value, and its number. Also of values in a ``$(…)``."""

    def add(self, text: str) -> None:
        self.begun = True
        if len(self.text) < _LONG_ENOUGH:
            self.text += text

    @property
    def reserved(self) -> bool:
        """Whether what follows is a command too."""
        return self.text in _BEFORE_COMMAND and not self.quoted

    @property
    def assigns(self) -> re.Match[str] | None:
        return _ASSIGNMENT.match(self.text)

    def all(self, place: Place) -> Iterator[tuple[int, Place]]:
        for _, value in self.values:
            yield value, place

    def named(self) -> Iterator[tuple[int, Place]]:
        """Values before the ``=``, or all if there is none."""
        end = len(self.text) if "=" not in self.text else self.text.index("=")
        for at, value in self.values:
            if at <= end:
                yield value, Place.NAME


Found = Iterator[tuple[int, Place]]


class Numbers(set[str]):
    """Names of variables that evaluate what they are given, as far as the script has said so."""

    def assigned(self, word: Word) -> Found:
        assigns = word.assigns
        if assigns and assigns[1] in self:
            for at, value in word.values:
                if at >= assigns.end():
                    yield value, Place.DECLARED


def evaluated_in_test(words: Sequence[Word]) -> Found:
    """The words between ``[[`` and ``]]``."""
    for before, word, after in zip([Word(), *words], words, [*words[1:], Word()], strict=False):
        if word.text in _NUMBERS:
            yield from before.all(Place.COMPARED)
            yield from after.all(Place.COMPARED)
        elif word.text == "-v":
            yield from after.all(Place.NAME)


def evaluated_in_command(words: Iterable[Word], numbers: Numbers) -> Found:
    """The words of one command, from what stands before its name."""
    rest = iter(words)
    for word in rest:
        if word.assigns:
            yield from numbers.assigned(word)
        elif not (word.reserved or word.text in ("builtin", "command", "-p", "--")):
            yield from _evaluated_by(word.text, list(rest), numbers)


def _evaluated_by(name: str, words: list[Word], numbers: Numbers) -> Found:
    if name == "let":
        for word in words:
            yield from word.all(Place.ARITHMETIC)
    elif name in ("declare", "typeset", "local"):
        yield from _declared(words, numbers, names=True)
    elif name in ("readonly", "export"):  # which refuse a name with an index
        yield from _declared(words, numbers, names=False)
    elif name in ("read", "unset", "wait"):
        yield from _named(name, words)
    elif name in ("test", "["):
        for option, word in pairwise(words):
            if _may_be_v(option):
                yield from word.all(Place.NAME)
    elif name == "printf" and words:
        if words[0].text.startswith("-v") and words[0].text != "-v":
            yield from words[0].all(Place.NAME)
        elif len(words) > 2 and _may_be_v(words[0]):
            yield from words[1].all(Place.NAME)


def _declared(words: list[Word], numbers: Numbers, *, names: bool) -> Found:
    options = "".join(word.text for word in words if word.text.startswith(("-", "+")))
    if {"f", "F", "p"} & set(options):  # only shows what there is
        return
    number, kept = "i" in options, bool({"a", "A", "n"} & set(options))
    for word in words:
        assigns = word.assigns
        if number:
            numbers.add(assigns[1] if assigns else word.text)
        for at, value in word.values:
            if number or (kept and ARRAY not in word.text[:at]):
                yield value, Place.DECLARED
        if names:
            yield from word.named()
        yield from numbers.assigned(word)


def _named(name: str, words: list[Word]) -> Found:
    """The names that ``read`` and ``unset`` take, and ``wait`` after ``-p``."""
    options, value_of = True, ""
    for word in words:
        if value_of:
            if (name, value_of) == ("wait", "p"):
                yield from word.all(Place.NAME)
            value_of = ""
        elif options and word.text.startswith("-"):
            if name == "unset" and "f" in word.text:
                return
            options = word.text != "--"
            value_of = _open_option(word.text, _OPTIONS_WITH_A_WORD[name])
        elif name != "wait":
            options = False
            yield from word.all(Place.NAME)


def _open_option(text: str, with_a_word: str) -> str:
    """Of the letters in ``text``, the one that the next word belongs to."""
    found = re.search(f"[{with_a_word}]", text) if with_a_word else None
    return text[-1] if found and found.end() == len(text) else ""


def _may_be_v(word: Word) -> bool:
    """Whether it is ``-v``, or some value would make it that."""
    fixed = word.text.replace(VALUE, "")
    return fixed == "-v" or (VALUE in word.text and fixed in ("", "-", "v"))
