"""Where a value stands in a shell or Python script, and how a reference to it is written there.

A reference is expanded by the shell, so it has no effect inside single quotes, and is dangerous in
arithmetic, whose operands bash evaluates again. The scanner knows the quoting, substitutions and
here-documents of sh and bash. Of commands it knows only where their words begin and end: what a
command does with an argument (``eval``, ``declare -i``, ``[[ … -eq … ]]``) is the script's own
business.
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.workflow.placeholders import Embedded, Part

MAX_DEPTH = 60
MAX_WORD_CHARS = 1000
"""Kept of a word, to recognise ``case`` or ``name=(``."""


class Place(Enum):
    """Where a value stands. Unfit places carry the reason and a remedy."""

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
    OFFSET = (
        "a value as an offset in ${name:offset:length} could run code",
        "cut the text in the expression: ${{ name[2:5] }}",
    )
    INDEX = (
        "a value as an index of a shell array could run code",
        "take the element in the expression: ${{ names[index] }}",
    )

    @property
    def unfit(self) -> tuple[str, str] | None:
        return self.value if isinstance(self.value, tuple) else None

    @property
    def evaluated(self) -> bool:
        """Whether bash would evaluate what a reference expands to, however it is quoted."""
        return self in _EVALUATED


_EVALUATED = frozenset({Place.BRACES, Place.ARITHMETIC, Place.PRINTED, Place.OFFSET, Place.INDEX})


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
    _Scanner(units, places).scan()
    return places


def reference(place: Place, variable: str) -> str:
    """The text for the script in place of the value: one word, whatever it holds."""
    return f'"${{{variable}}}"' if place is Place.WORD else f"${{{variable}}}"


Unit = str | int
"""A character of the script, or the number of a value."""
_BREAKS = frozenset(" \t\n;&|()<>")
"""Characters that end an unquoted word."""
_BEFORE_COMMAND = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "time", "coproc"}
)
_ARRAY_BEGINS = re.compile(r"\w+(?:\[.*\])?\+?=", re.ASCII | re.DOTALL).fullmatch
_WITH_WORDS = frozenset({"code", "array", "backtick"})
_IN_PARAMETER = {"index": Place.INDEX, "offset": Place.OFFSET, "braces": Place.BRACES}


class _Frame(Struct):
    """One level of nesting: its kind, and the state of reading it."""

    kind: str
    """code, array, backtick (with words of their own); double, parameter, arithmetic, old (for
    ``$[``), document."""
    quoted: bool = False
    """Whether it is inside double quotes (or a here-document)."""
    in_word: bool = False
    """Whether the word it is in continues after it."""
    depth: int = 0
    """Open parentheses or brackets; in code: open ``case``."""
    word: str | None = None
    """The word being read; a quote is kept in it, so that it equals no reserved word."""
    leads: bool = True
    """Whether ``word`` is where a command may begin."""
    part: str = "name"
    """Of a parameter: name, index, offset, text, braces."""
    name: str = ""

    def add(self, text: str) -> None:
        if self.kind in _WITH_WORDS and len(self.word or "") < MAX_WORD_CHARS:
            self.word = (self.word or "") + text

    def end_word(self) -> None:
        word, self.word = self.word, None
        if word is None:
            return
        if self.leads and word in ("case", "esac"):
            self.depth = max(0, self.depth + (1 if word == "case" else -1))
        self.leads = self.leads and word in _BEFORE_COMMAND

    def end_command(self) -> None:
        self.end_word()
        self.leads = self.kind != "array"


class _Mark(NamedTuple):
    """The end mark of a here-document."""

    text: str
    quoted: bool
    """The body is not expanded."""
    stripped: bool
    """``<<-``: leading tabs are removed."""

    def ends(self, line: list[Unit]) -> bool:
        if any(isinstance(unit, int) for unit in line):
            return False
        text = "".join(map(str, line))
        return (text.lstrip("\t") if self.stripped else text) == self.text


class _Scanner:
    """Reads a script, or (at a ``depth``) the body of a here-document in it, and appends the place
    of each value to ``places``."""

    def __init__(
        self, units: list[Unit], places: list[Place], depth: int = 0, around: Place | None = None
    ) -> None:
        self._units = units
        self._at = 0
        self._places = places
        self._depth = depth
        self._around = around
        """The unfit place of the whole here-document, if any."""
        self._stack = [_Frame("document", quoted=True) if depth else _Frame("code")]
        self._marks: list[_Mark] = []

    def scan(self) -> None:
        while self._at < len(self._units):
            unit = self._units[self._at]
            if isinstance(unit, int):
                self._places[unit] = self._place()
                self._add("$")
            else:
                self._step(unit)

    def _place(self) -> Place:
        quoted = self._stack[-1].quoted
        return self._unfit() or (Place.QUOTED if quoted else Place.WORD)

    def _unfit(self) -> Place | None:
        """The unfit place around here, at any distance: what a ``$(…)`` in arithmetic prints is
        evaluated as well."""
        found = self._around
        for frame in self._stack:
            if frame.kind == "backtick":
                return Place.BACKTICKS
            if frame.kind == "code" and found is Place.ARITHMETIC:
                found = Place.PRINTED
            elif frame.kind in ("arithmetic", "old"):
                found = found or Place.ARITHMETIC
            elif frame.kind == "parameter":
                found = found or _IN_PARAMETER.get(frame.part)
        return found

    def _sees(self, *texts: str) -> bool:
        return any(self._units[self._at : self._at + len(text)] == list(text) for text in texts)

    def _add(self, text: str) -> None:
        self._stack[-1].add(text)
        self._at += 1

    def _skip(self, length: int, place: Place) -> None:
        for unit in self._units[self._at : self._at + length]:
            if isinstance(unit, int):
                self._places[unit] = place
        self._at += length

    # One character.

    def _step(self, unit: str) -> None:
        top = self._stack[-1]
        if unit == "\\":
            if not self._sees("\\\n"):
                top.add("\\")
            self._skip(2, Place.ESCAPED)
        elif unit == "$" and self._opens_substitution(top):
            pass
        elif unit == "`":
            self._toggle_backtick(top)
        elif unit == '"' and top.kind != "document":
            self._toggle_double(top)
        elif unit == "'" and not top.quoted:
            self._skip_single(escapes=False)
        elif top.kind in _WITH_WORDS:
            self._step_in_code(unit, top)
        elif top.kind == "parameter":
            self._step_in_parameter(unit, top)
        elif top.kind == "arithmetic" and unit in "()":
            self._step_in_arithmetic(unit, top)
        elif top.kind == "old" and unit in "[]":
            self._step_in_brackets(unit, top)
        else:
            self._at += 1

    def _step_in_code(self, unit: str, top: _Frame) -> None:
        if unit == "#" and top.word is None:
            self._skip(self._line_end() - self._at, Place.COMMENT)
        elif self._sees("<<<"):
            top.end_word()
            self._at += 3
        elif self._sees("<<"):
            top.end_word()
            self._at += 2
            self._marks.append(self._read_mark())
        elif self._sees("<(", ">("):
            self._open("code", 2)
        elif self._sees("((") and (top.word is None or top.word in {*_BEFORE_COMMAND, "for"}):
            top.end_word()
            self._open("arithmetic", 2)
        elif unit == "(" and top.word is not None and _ARRAY_BEGINS(top.word):
            self._push(_Frame("array", in_word=True, leads=False))
            self._at += 1
        elif unit in _BREAKS:
            self._step_at_break(unit, top)
        else:
            self._add(unit)

    def _step_at_break(self, unit: str, top: _Frame) -> None:
        self._at += 1
        if unit in " \t<>":
            top.end_word()
            return
        top.end_command()
        if unit == "(":
            self._push(_Frame("code"))
        elif unit == ")":
            self._close_parenthesis(top)
        elif unit == "\n" and self._marks:
            self._read_documents()

    def _close_parenthesis(self, top: _Frame) -> None:
        if len(self._stack) > 1 and not top.depth and top.kind != "backtick":
            self._stack.pop()
            if not top.in_word:
                self._stack[-1].end_command()

    def _step_in_arithmetic(self, unit: str, top: _Frame) -> None:
        if unit == "(":
            top.depth += 1
        elif top.depth:
            top.depth -= 1
        elif self._sees("))"):
            self._stack.pop()
            self._at += 1
        self._at += 1

    def _step_in_brackets(self, unit: str, top: _Frame) -> None:
        if unit == "]" and not top.depth:
            self._stack.pop()
        top.depth += 1 if unit == "[" else -1
        self._at += 1

    def _step_in_parameter(self, unit: str, top: _Frame) -> None:
        if unit == "}":
            self._stack.pop()
        elif top.part == "index":
            top.depth += (unit == "[") - (unit == "]")
            if not top.depth:
                top.part = "name"
        elif top.part == "name":
            top.part = self._after_name(unit, top)
            top.name += unit
        self._at += 1

    def _after_name(self, unit: str, top: _Frame) -> str:
        """What this character begins: more of the name, or an operation on it."""
        if unit == "[":
            top.depth = 1
            return "index"
        if unit == ":":
            return "text" if self._sees(":-", ":=", ":+", ":?") else "offset"
        if not top.name and unit in " \t\n|":
            return "braces"
        special = top.name in ("", "!", "#") and unit in "!#@*?-$"
        return "name" if special or unit.isalnum() or unit == "_" else "text"

    # What opens and closes.

    def _opens_substitution(self, top: _Frame) -> bool:
        if self._sees("$(("):
            self._open("arithmetic", 3, top.quoted)
        elif self._sees("$("):
            self._open("code", 2)
        elif self._sees("$["):
            self._open("old", 2, top.quoted)
        elif self._sees("${"):
            self._open("parameter", 2, top.quoted)
        elif self._sees("$'") and not top.quoted:
            self._at += 1
            self._skip_single(escapes=True)
        else:
            return False
        return True

    def _open(self, kind: str, length: int, quoted: bool = False) -> None:
        self._stack[-1].add("$")
        self._push(_Frame(kind, quoted=quoted, in_word=True))
        self._at += length

    def _push(self, frame: _Frame) -> None:
        if len(self._stack) + self._depth >= MAX_DEPTH:
            raise ExpressionError("the script is nested too deeply to put values into it")
        self._stack.append(frame)

    def _toggle_double(self, top: _Frame) -> None:
        top.add('"')
        if top.kind == "double":
            self._stack.pop()
        else:
            self._push(_Frame("double", quoted=True))
        self._at += 1

    def _toggle_backtick(self, top: _Frame) -> None:
        open_at = [i for i, frame in enumerate(self._stack) if frame.kind == "backtick"]
        if open_at:
            del self._stack[open_at[-1] :]
            self._at += 1
        else:
            self._open("backtick", 1)

    # Stretches read at once.

    def _skip_single(self, *, escapes: bool) -> None:
        end = self._at + 1
        while end < len(self._units) and self._units[end] != "'":
            end += 2 if escapes and self._units[end] == "\\" else 1
        self._stack[-1].add("'")
        self._skip(end + 1 - self._at, Place.SINGLE)

    def _line_end(self) -> int:
        try:
            return self._units.index("\n", self._at)
        except ValueError:
            return len(self._units)

    def _read_mark(self) -> _Mark:
        """What follows ``<<``: ``EOF``, ``-EOF``, ``'EOF'``."""
        stripped = self._sees("-")
        self._at += stripped
        while self._sees(" ", "\t"):
            self._at += 1
        text, quoted, quote = "", False, ""
        for unit in self._units[self._at :]:
            if isinstance(unit, int) or (not quote and unit in _BREAKS):
                break
            if unit == quote:
                quote = ""
            elif unit in "'\"" and not quote:
                quote, quoted = unit, True
            elif unit == "\\" and not quote:
                quoted = True
            else:
                text += unit
            self._at += 1
        return _Mark(text, quoted, stripped)

    def _read_documents(self) -> None:
        """Here-documents follow each other; the last may end with the script."""
        marks, self._marks = self._marks, []
        for mark in marks:
            body: list[Unit] = []
            while self._at < len(self._units):
                end = self._line_end()
                line = self._units[self._at : end]
                self._at = end + 1
                if mark.ends(line):
                    break
                body += [*line, "\n"]
            if not mark.quoted:
                depth = self._depth + len(self._stack)
                _Scanner(body, self._places, depth, self._unfit()).scan()
                continue
            for unit in body:
                if isinstance(unit, int):
                    self._places[unit] = Place.FIXED_DOCUMENT


# Python scripts: a value is replaced by an expression that reads the environment. That works
# wherever Python expects an expression, and never inside a string.


_STRING_STARTS = {
    kind for name in ("FSTRING_START", "TSTRING_START") if (kind := getattr(tokenize, name, None))
}
_STRING_ENDS = {
    kind for name in ("FSTRING_END", "TSTRING_END") if (kind := getattr(tokenize, name, None))
}


def put_references(parts: Sequence[Part], variables: Sequence[str]) -> list[str]:
    """``parts`` as script text, each value as its reference. ``ExpressionError``."""
    values = [part for part in parts if isinstance(part, Embedded)]
    names = iter(variables)
    sketch = "".join(next(names) if isinstance(part, Embedded) else _raw(part) for part in parts)
    inside_comment = _check(sketch, values, variables)
    written: list[str] = []
    names = iter(variables)
    for part in parts:
        if not isinstance(part, Embedded):
            written.append(_raw(part))
            continue
        name = next(names)
        comment = name in inside_comment
        written.append(part.raw if comment else f'__import__("os").environ["{name}"]')
    return written


def _raw(part: Part) -> str:
    return part if isinstance(part, str) else part.raw


def _check(sketch: str, values: Sequence[Embedded], variables: Sequence[str]) -> set[str]:
    """Check that each variable is a name of its own; returns those that are in comments."""
    free: set[str] = set()
    comments: set[str] = set()
    for kind, text, in_string in _tokens(sketch):
        if kind == tokenize.NAME and not in_string:
            free.add(text)
        elif kind == tokenize.COMMENT:
            comments.update(name for name in variables if name in text)
    for value, name in zip(values, variables, strict=True):
        if name not in free and name not in comments:
            raise ExpressionError(
                f"{value.raw!r} stands inside a Python string or name",
                hint="put it where an expression may stand, outside of quotes",
                offset=value.offset,
            )
    return comments - free


def _tokens(sketch: str) -> Iterator[tuple[int, str, bool]]:
    depth = 0
    lines = iter(sketch.splitlines(keepends=True))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            depth += token.type in _STRING_STARTS
            yield token.type, token.string, depth > 0
            depth -= token.type in _STRING_ENDS
    except (tokenize.TokenError, SyntaxError) as error:
        raise ExpressionError(
            f"the script cannot be read as Python: {error.args[0]}",
            hint="pass values by name instead: os.environ['name']",
        ) from error
