"""Where in a shell script a value stands, and so how a reference to it must be written there.

A reference is expanded by the shell, so it is of no use inside single quotes, and of danger inside
arithmetic (bash evaluates what it finds there). The scanner knows sh's and bash's quoting: quotes,
escapes, comments, substitutions, here-documents. It does not parse commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.workflow.templates import Part


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
    ARITHMETIC = (
        "a value inside shell arithmetic could run code",
        "do the sum in the expression: ${{ count + 1 }}",
    )
    BACKTICKS = ("a value inside backticks cannot be quoted safely", "use $(…) instead")

    @property
    def unfit(self) -> tuple[str, str] | None:
        return self.value if isinstance(self.value, tuple) else None


class _Frame(Struct):
    """One level of nesting: what closes it, and how its inside is read."""

    kind: str
    """code, double, parameter, arithmetic, backtick, document."""
    depth: int = 0
    """Open parentheses in arithmetic, open ``case`` in code."""
    quoted: bool = False
    """Whether it stands inside double quotes (or a here-document) itself."""


Unit = str | int
"""A character of the script, or the number of a value that stands there."""
_DEEPEST = 60
_BREAKS = frozenset(" \t\n;&|()<>")
_BEFORE_COMMAND = frozenset({"", "then", "do", "else", "elif", "if", "while", "until", "!", "{"})


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


class _Scanner:
    """Reads a script, or (at a ``depth``) the body of a here-document in one."""

    def __init__(self, units: list[Unit], places: list[Place], depth: int = 0) -> None:
        self._units = units
        self._places = places
        self._depth = depth
        self._at = 0
        self._stack = [_Frame("document", quoted=True) if depth else _Frame("code")]
        self._documents: list[tuple[str, bool, bool]] = []
        self._word = ""
        self._leads = True
        """Whether the present word is where a command begins."""

    def scan(self) -> None:
        while self._at < len(self._units):
            unit = self._units[self._at]
            if isinstance(unit, int):
                self._places[unit] = self._place()
                self._word += "$"
                self._at += 1
            else:
                self._step(unit)

    def _place(self) -> Place:
        if any(frame.kind == "backtick" for frame in self._stack):
            return Place.BACKTICKS
        top = self._stack[-1]
        if top.kind == "arithmetic":
            return Place.ARITHMETIC
        if top.kind in ("double", "document") or top.quoted:
            return Place.QUOTED
        return Place.WORD

    # -- one character ----------------------------------------------------------------------------

    def _step(self, unit: str) -> None:
        top = self._stack[-1]
        if unit == "\\":
            self._skip(2, Place.ESCAPED)
            self._word += "\\"
        elif unit == "$" and self._opens_substitution():
            pass
        elif unit == "`":
            self._toggle_backtick()
        elif top.kind == "code" or top.kind == "backtick":
            self._step_in_code(unit, top)
        elif unit == '"' and top.kind != "document":
            self._toggle_double(top)
        elif unit == "'" and top.kind in ("parameter", "arithmetic") and not top.quoted:
            self._skip_single()
        elif top.kind == "parameter" and unit == "}":
            self._close()
        elif top.kind == "arithmetic" and unit in "()":
            self._step_in_arithmetic(unit, top)
        else:
            self._at += 1

    def _step_in_code(self, unit: str, top: _Frame) -> None:
        if unit == "'":
            self._skip_single()
        elif unit == '"':
            self._toggle_double(top)
        elif unit == "#" and not self._word:
            self._skip_line(Place.COMMENT)
        elif unit == "<" and self._sees("<<<"):
            self._break_word(3)
        elif unit == "<" and self._sees("<<"):
            self._read_document_mark()
        elif unit == "(" and not self._word and self._sees("(("):
            self._open("arithmetic", 2)
        elif unit in _BREAKS:
            self._step_at_break(unit, top)
        else:
            self._word += unit
            self._at += 1

    def _step_at_break(self, unit: str, top: _Frame) -> None:
        word, led = self._word, self._leads
        if led and word in ("case", "esac"):
            top.depth = max(0, top.depth + (1 if word == "case" else -1))
        self._break_word(1)
        self._leads = unit not in " \t<>" or (led and word in _BEFORE_COMMAND)
        if unit == "(":
            self._push(_Frame("code"))
        elif unit == ")" and len(self._stack) > 1 and not top.depth and top.kind == "code":
            self._stack.pop()
        elif unit == "\n" and self._documents:
            self._read_documents()

    def _step_in_arithmetic(self, unit: str, top: _Frame) -> None:
        if unit == "(":
            top.depth += 1
        elif top.depth:
            top.depth -= 1
        elif self._sees("))"):
            self._close()
        self._at += 1

    # -- what opens and closes --------------------------------------------------------------------

    def _opens_substitution(self) -> bool:
        quoted = self._stack[-1].quoted or self._stack[-1].kind in ("double", "document")
        if self._sees("$(("):
            self._open("arithmetic", 3, quoted)
        elif self._sees("$("):
            self._open("code", 2)
        elif self._sees("${"):
            self._open("parameter", 2, quoted)
        elif self._sees("$'") and not quoted:
            self._at += 1
            self._skip_single(escapes=True)
        else:
            return False
        return True

    def _push(self, frame: _Frame) -> None:
        if len(self._stack) + self._depth >= _DEEPEST:
            raise ExpressionError("the script is nested too deeply to put values into it")
        self._stack.append(frame)

    def _open(self, kind: str, length: int, quoted: bool = False) -> None:
        self._push(_Frame(kind, quoted=quoted))
        self._word = "" if kind == "code" else "$"
        self._leads = kind == "code"
        self._at += length

    def _close(self) -> None:
        self._stack.pop()
        self._word = "$"
        self._at += 1

    def _toggle_double(self, top: _Frame) -> None:
        if top.kind == "double":
            self._stack.pop()
        else:
            self._push(_Frame("double", quoted=True))
        self._word = '"'
        self._at += 1

    def _toggle_backtick(self) -> None:
        open_at = [i for i, frame in enumerate(self._stack) if frame.kind == "backtick"]
        if open_at:
            del self._stack[open_at[-1] :]
        else:
            self._push(_Frame("backtick"))
        self._word = "" if not open_at else "`"
        self._at += 1

    # -- stretches read at once -------------------------------------------------------------------

    def _sees(self, text: str) -> bool:
        return self._units[self._at : self._at + len(text)] == list(text)

    def _skip(self, length: int, place: Place) -> None:
        for unit in self._units[self._at : self._at + length]:
            if isinstance(unit, int):
                self._places[unit] = place
        self._at += length

    def _skip_single(self, escapes: bool = False) -> None:
        end = self._at + 1
        while end < len(self._units) and self._units[end] != "'":
            end += 2 if escapes and self._units[end] == "\\" else 1
        self._skip(end + 1 - self._at, Place.SINGLE)
        self._word += "'"

    def _skip_line(self, place: Place) -> None:
        self._skip(self._line_end(self._at) - self._at, place)

    def _line_end(self, at: int) -> int:
        try:
            return self._units.index("\n", at)
        except ValueError:
            return len(self._units)

    def _break_word(self, length: int) -> None:
        self._word = ""
        self._at += length

    # -- here-documents ---------------------------------------------------------------------------

    def _read_document_mark(self) -> None:
        """``<<EOF``, ``<<-EOF``, ``<<'EOF'``: its body begins after the line."""
        self._at += 2
        stripped = self._sees("-")
        self._at += stripped
        while self._at < len(self._units) and self._units[self._at] in (" ", "\t"):
            self._at += 1
        mark, quoted, quote = "", False, ""
        while self._at < len(self._units):
            unit = self._units[self._at]
            if isinstance(unit, int) or (not quote and unit in _BREAKS):
                break
            if unit == quote:
                quote = ""
            elif unit in "'\"" and not quote:
                quote, quoted = unit, True
            elif unit == "\\" and not quote:
                quoted = True
            else:
                mark += unit
            self._at += 1
        self._documents.append((mark, quoted, stripped))
        self._word = ""

    def _read_documents(self) -> None:
        for mark, quoted, stripped in self._documents:
            start = self._at
            while self._at < len(self._units):
                line_start, end = self._at, self._line_end(self._at)
                line = self._units[line_start:end]
                self._at = end + 1
                if _is_mark(line, mark, stripped):
                    self._read_body(self._units[start:line_start], quoted)
                    break
            else:
                self._at = len(self._units)
                self._read_body(self._units[start:], quoted)
        self._documents.clear()
        self._at = min(self._at, len(self._units))

    def _read_body(self, body: list[Unit], quoted: bool) -> None:
        if not quoted:
            _Scanner(body, self._places, self._depth + len(self._stack)).scan()
            return
        for unit in body:
            if isinstance(unit, int):
                self._places[unit] = Place.FIXED_DOCUMENT


def _is_mark(line: list[Unit], mark: str, stripped: bool) -> bool:
    if any(isinstance(unit, int) for unit in line):
        return False
    text = "".join(str(unit) for unit in line)
    return (text.lstrip("\t") if stripped else text) == mark


def reference(place: Place, variable: str) -> str:
    """What the script says at ``place`` instead of the value: one word, whatever it holds."""
    return f'"${{{variable}}}"' if place is Place.WORD else f"${{{variable}}}"
