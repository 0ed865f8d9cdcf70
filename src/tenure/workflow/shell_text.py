"""Where in a shell script a value stands, and so how a reference to it must be written there.

A reference is expanded by the shell, so it is of no use inside single quotes, and of danger where
bash evaluates what it finds: in arithmetic, however deep a value stands in it. The scanner knows
sh's and bash's quoting: quotes, escapes, comments, substitutions, here-documents. Of commands it
knows where they begin and what their words are; ``shell_words`` says which of these are evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tenure.model.errors import ExpressionError
from tenure.workflow.shell_frames import IN_PARAMETER, WITH_WORDS, WITHIN_WORD, Frame
from tenure.workflow.shell_places import Place
from tenure.workflow.shell_words import (
    ARRAY,
    EVALUATED_WHEN_SET,
    VALUE,
    Numbers,
    Word,
    evaluated_in_command,
    evaluated_in_test,
)
from tenure.workflow.templates import Part

Unit = str | int
"""A character of the script, or the number of a value that stands there."""
_DEEPEST = 60
_BREAKS = frozenset(" \t\n;&|()<>")
_ARRAY_BEGINS = re.compile(r"\w+(?:\[.*\])?\+?=", re.ASCII | re.DOTALL).fullmatch


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

    def __init__(
        self,
        units: list[Unit],
        places: list[Place],
        depth: int = 0,
        around: Place | None = None,
        numbers: Iterable[str] = EVALUATED_WHEN_SET,
    ) -> None:
        self._units = units
        self._places = places
        self._depth = depth
        self._around = around
        """What is unfit about the place of the whole here-document."""
        self._at = 0
        self._stack = [Frame("document", quoted=True) if depth else Frame("code")]
        self._documents: list[tuple[str, bool, bool]] = []
        self._numbers = Numbers(numbers)

    def scan(self) -> None:
        while self._at < len(self._units):
            unit = self._units[self._at]
            if isinstance(unit, int):
                self._places[unit] = self._place()
                self._put_into_words(unit, self._stack)
                if self._within_word:
                    self._top.word.add(VALUE)
                self._at += 1
            else:
                self._step(unit)
        while self._stack:
            self._end_command(self._stack.pop())

    @property
    def _top(self) -> Frame:
        return self._stack[-1]

    @property
    def _within_word(self) -> bool:
        return self._top.kind in WITH_WORDS or self._top.kind in WITHIN_WORD

    def _place(self) -> Place:
        if unfit := self._unfit():
            return unfit
        if self._top.kind in ("double", "document") or self._top.quoted:
            return Place.QUOTED
        return Place.WORD

    def _unfit(self) -> Place | None:
        """Whatever stands between: what a ``$(…)`` in arithmetic prints is evaluated as well."""
        found = self._around
        for frame in self._stack:
            if frame.kind == "backtick":
                return Place.BACKTICKS
            if frame.kind == "code" and found is Place.ARITHMETIC:
                found = Place.PRINTED
            elif frame.kind in ("arithmetic", "old"):
                found = found or Place.ARITHMETIC
            elif frame.kind == "parameter":
                found = found or IN_PARAMETER.get(frame.part)
        return found

    # -- words and commands -----------------------------------------------------------------------

    def _put_into_words(self, value: int, frames: Iterable[Frame]) -> None:
        for frame in frames:
            if frame.kind in WITH_WORDS:
                frame.word.values.append((len(frame.word.text), value))

    def _end_word(self, frame: Frame) -> None:
        word, frame.word = frame.word, Word()
        if not word.begun:
            return
        if frame.redirects:
            frame.redirects = False
            return
        if frame.kind == "array":
            return
        if frame.leads and frame.kind != "test" and word.text in ("case", "esac"):
            if not word.quoted:
                frame.depth = max(0, frame.depth + (1 if word.text == "case" else -1))
        elif word.text == "{" and frame.words and frame.words[0].text == "function":
            frame.words, frame.leads = [], True
            return
        frame.words.append(word)
        frame.leads = frame.leads and (word.reserved or word.assigns is not None)

    def _end_command(self, frame: Frame) -> None:
        if frame.kind not in WITH_WORDS:
            return
        self._end_word(frame)
        words, frame.words = frame.words, []
        frame.leads, frame.redirects = True, False
        if frame.kind == "test":
            self._refuse(evaluated_in_test(words))
        else:
            self._refuse(evaluated_in_command(words, self._numbers))

    def _refuse(self, found: Iterable[tuple[int, Place]]) -> None:
        for value, place in found:
            if not self._places[value].unfit:
                self._places[value] = place

    # -- one character ----------------------------------------------------------------------------

    def _step(self, unit: str) -> None:
        top = self._top
        if unit == "\\":
            self._step_at_backslash()
        elif unit == "$" and self._opens_substitution():
            pass
        elif unit == "`":
            self._toggle_backtick()
        elif top.kind in WITH_WORDS:
            self._step_in_code(unit, top)
        elif unit == '"' and top.kind != "document":
            self._toggle_double(top)
        elif unit == "'" and not top.quoted:
            self._skip_single()
        elif top.kind == "parameter":
            self._step_in_parameter(unit, top)
        elif top.kind == "arithmetic" and unit in "()":
            self._step_in_arithmetic(unit, top)
        elif top.kind in ("old", "subscript") and unit in "[]":
            self._step_in_brackets(unit, top)
        else:
            self._add(unit)

    def _step_at_backslash(self) -> None:
        after = self._units[self._at + 1 : self._at + 2]
        self._skip(2, Place.ESCAPED)
        if after != ["\n"] and self._within_word:
            self._top.word.add(after[0] if after and isinstance(after[0], str) else "$")
            self._top.word.quoted = True

    def _step_in_code(self, unit: str, top: Frame) -> None:
        if unit == "'":
            self._skip_single()
        elif unit == '"':
            self._toggle_double(top)
        elif unit == "#" and not top.word.begun:
            self._skip_line(Place.COMMENT)
        elif unit == "<" and self._sees("<<<"):
            self._redirect(top, 3)
        elif unit == "<" and self._sees("<<"):
            self._read_document_mark()
        elif top.kind != "test" and (self._sees("<(") or self._sees(">(")):
            self._open("code", 2)
        elif unit == "(" and self._begins_arithmetic(top):
            self._end_word(top)
            self._open("arithmetic", 2)
        elif unit == "[" and self._begins_subscript(top):
            self._push(Frame("subscript", word=top.word, first=len(top.word.values)))
            self._add(unit)
        elif unit in _BREAKS:
            self._step_at_break(unit, top)
        else:
            self._add(unit)

    def _step_at_break(self, unit: str, top: Frame) -> None:
        if top.kind == "test":
            self._step_in_test(unit, top)
        elif unit in "<>":
            self._redirect(top, 1)
        elif unit in "&|" and top.redirects and not top.word.begun:
            self._at += 1  # >& and >|
        elif unit == "&" and self._sees("&>"):
            self._at += 1
        elif unit == "(" and not top.word.quoted and _ARRAY_BEGINS(top.word.text):
            top.word.add(ARRAY)
            self._push(Frame("array", in_word=True))
            self._at += 1
        elif unit in " \t\n" and self._begins_test(top):
            self._end_word(top)
            self._push(Frame("test"))
        elif unit in " \t" or (top.kind == "array" and unit != ")"):
            self._end_word(top)
            self._at += 1
        else:
            self._end_command(top)
            self._at += 1
            if unit == "(":
                self._push(Frame("code"))
            elif unit == ")":
                self._close_parenthesis(top)
            elif unit == "\n" and self._documents:
                self._read_documents()

    def _close_parenthesis(self, top: Frame) -> None:
        if len(self._stack) == 1 or top.depth or top.kind not in ("code", "array"):
            return
        self._stack.pop()
        if not top.in_word and self._top.kind in WITH_WORDS:
            self._end_command(self._top)

    def _step_in_test(self, unit: str, top: Frame) -> None:
        ends = top.word.text == "]]" and not top.word.quoted
        self._end_word(top)
        unmatched = unit == ")" and not top.depth
        alone = unit == ";" or (unit == "&" and not self._sees("&&"))
        if ends or unmatched or alone:  # the last two: no [[ of bash, which would not run it
            self._end_command(self._stack.pop())
            return
        if unit in "()":
            top.depth += 1 if unit == "(" else -1
        length = 2 if self._sees("&&") or self._sees("||") else 1
        if unit not in " \t\n":
            top.words.append(Word(unit, quoted=True))
        elif unit == "\n" and self._documents:
            self._at += 1
            self._read_documents()
            return
        self._at += length

    def _step_in_arithmetic(self, unit: str, top: Frame) -> None:
        if unit == "(":
            top.depth += 1
        elif top.depth:
            top.depth -= 1
        elif self._sees("))"):
            self._stack.pop()
            self._at += 1
        self._at += 1

    def _step_in_brackets(self, unit: str, top: Frame) -> None:
        if unit == "[" or top.depth:
            top.depth += 1 if unit == "[" else -1
            self._add(unit)
            return
        self._add(unit)
        self._stack.pop()
        if top.kind == "subscript" and (self._sees("=") or self._sees("+=")):
            self._refuse((value, Place.INDEX) for _, value in top.word.values[top.first :])

    def _step_in_parameter(self, unit: str, top: Frame) -> None:
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

    def _after_name(self, unit: str, top: Frame) -> str:
        """What begins with this character: more of the name, or what is done with it."""
        if unit == "[":
            top.depth = 1
            return "index"
        if unit == ":":
            return "text" if any(self._sees(f":{sign}") for sign in "-=+?") else "offset"
        if not top.name and unit in " \t\n|":
            return "braces"
        special = top.name in ("", "!", "#") and unit in "!#@*?-$"
        return "name" if special or unit.isalnum() or unit == "_" else "text"

    def _add(self, unit: str) -> None:
        if self._within_word:
            self._top.word.add(unit)
        self._at += 1

    def _redirect(self, top: Frame, length: int) -> None:
        """``>``, ``2>``, ``{fd}>``: none of the words of a command, and nor is what follows."""
        if top.word.text.isdecimal():
            top.word = Word()
        elif top.word.text[:1] == "{" and "[" in top.word.text:
            self._refuse(top.word.all(Place.INDEX))
        self._end_word(top)
        top.redirects = True
        self._at += length

    # -- what opens and closes --------------------------------------------------------------------

    def _begins_arithmetic(self, top: Frame) -> bool:
        if top.kind not in ("code", "backtick") or not self._sees("(("):
            return False
        return not top.word.begun or (top.leads and top.word.reserved)

    def _begins_test(self, top: Frame) -> bool:
        word = top.word
        return top.kind != "array" and top.leads and word.text == "[[" and not word.quoted

    def _begins_subscript(self, top: Frame) -> bool:
        """Bash reads ``a[…]=`` to the bracket, spaces or not, where it may be an assignment."""
        if top.kind == "array":
            return not top.word.begun
        return top.leads and top.word.text.isidentifier() and not top.word.quoted

    def _opens_substitution(self) -> bool:
        quoted = self._top.quoted or self._top.kind in ("double", "document")
        if self._sees("$(("):
            self._open("arithmetic", 3, quoted)
        elif self._sees("$("):
            self._open("code", 2)
        elif self._sees("$["):
            self._open("old", 2, quoted)
        elif self._sees("${"):
            self._open("parameter", 2, quoted)
        elif self._sees("$'") and not quoted:
            self._at += 1
            self._skip_single(escapes=True)
        else:
            return False
        return True

    def _push(self, frame: Frame) -> None:
        if len(self._stack) + self._depth >= _DEEPEST:
            raise ExpressionError("the script is nested too deeply to put values into it")
        self._stack.append(frame)

    def _open(self, kind: str, length: int, quoted: bool = False) -> None:
        self._top.word.add("$")
        self._push(Frame(kind, quoted=quoted, in_word=True))
        self._at += length

    def _toggle_double(self, top: Frame) -> None:
        if top.kind == "double":
            self._stack.pop()
        else:
            self._push(Frame("double", quoted=True, word=top.word))
        top.word.add("")
        top.word.quoted = True
        self._at += 1

    def _toggle_backtick(self) -> None:
        open_at = [i for i, frame in enumerate(self._stack) if frame.kind == "backtick"]
        if open_at:
            del self._stack[open_at[-1] :]
        else:
            self._top.word.add("$")
            self._push(Frame("backtick"))
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
        if self._within_word:
            inside = self._units[self._at + 1 : end]
            self._top.word.add("".join(unit for unit in inside if isinstance(unit, str)))
            self._top.word.quoted = True
        self._skip(end + 1 - self._at, Place.SINGLE)

    def _skip_line(self, place: Place) -> None:
        self._skip(self._line_end(self._at) - self._at, place)

    def _line_end(self, at: int) -> int:
        try:
            return self._units.index("\n", at)
        except ValueError:
            return len(self._units)

    # -- here-documents ---------------------------------------------------------------------------

    def _read_document_mark(self) -> None:
        """``<<EOF``, ``<<-EOF``, ``<<'EOF'``: its body begins after the line."""
        self._redirect(self._top, 2)
        self._top.redirects = False
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
            depth = self._depth + len(self._stack)
            _Scanner(body, self._places, depth, self._unfit(), self._numbers).scan()
        for unit in body:
            if isinstance(unit, int):
                self._put_into_words(unit, self._stack[:-1])
                if quoted:
                    self._places[unit] = Place.FIXED_DOCUMENT


def _is_mark(line: list[Unit], mark: str, stripped: bool) -> bool:
    if any(isinstance(unit, int) for unit in line):
        return False
    text = "".join(str(unit) for unit in line)
    return (text.lstrip("\t") if stripped else text) == mark
