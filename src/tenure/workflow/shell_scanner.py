"""Reads a shell script character by character, as sh and bash do: quotes, escapes, comments,
substitutions. Of commands it knows where they begin and end, and where their words do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tenure.model.errors import ExpressionError
from tenure.workflow.shell_commands import Commands
from tenure.workflow.shell_documents import Mark, read_bodies, read_mark
from tenure.workflow.shell_frames import IN_PARAMETER, WITH_WORDS, WITHIN_WORD, Frame
from tenure.workflow.shell_places import Place
from tenure.workflow.shell_units import BREAKS, Unit, Units
from tenure.workflow.shell_words import ARRAY, EVALUATED_WHEN_SET, VALUE, Word

_DEEPEST = 60
_ARRAY_BEGINS = re.compile(r"\w+(?:\[.*\])?\+?=", re.ASCII | re.DOTALL).fullmatch


class Scanner:
    """Reads a script, or (at a ``depth``) the body of a here-document in one: each value gets its
    place among ``places``."""

    def __init__(
        self,
        units: list[Unit],
        places: list[Place],
        depth: int = 0,
        around: Place | None = None,
        numbers: Iterable[str] = EVALUATED_WHEN_SET,
    ) -> None:
        self._units = Units(units)
        self._places = places
        self._depth = depth
        self._around = around
        """What is unfit about the place of the whole here-document."""
        self._stack = [Frame("document", quoted=True) if depth else Frame("code")]
        self._marks: list[Mark] = []
        self._commands = Commands(places, numbers)

    def scan(self) -> None:
        while self._units.left:
            unit = self._units.here
            if isinstance(unit, int):
                self._places[unit] = self._place()
                self._commands.put(unit, self._stack)
                if self._within_word:
                    self._top.word.add(VALUE)
                self._units.at += 1
            else:
                self._step(unit)
        while self._stack:
            self._commands.end(self._stack.pop())

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
        after = self._units.ahead(2)[1:]
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
            self._skip(self._units.length_of_line(), Place.COMMENT)
        elif unit == "<" and self._units.sees("<<<"):
            self._redirect(top, 3)
        elif unit == "<" and self._units.sees("<<"):
            self._read_mark(top)
        elif top.kind != "test" and (self._units.sees("<(") or self._units.sees(">(")):
            self._open("code", 2)
        elif unit == "(" and self._begins_arithmetic(top):
            self._commands.end_word(top)
            self._open("arithmetic", 2)
        elif unit == "[" and self._begins_subscript(top):
            self._push(Frame("subscript", word=top.word, first=len(top.word.values)))
            self._add(unit)
        elif unit in BREAKS:
            self._step_at_break(unit, top)
        else:
            self._add(unit)

    def _step_at_break(self, unit: str, top: Frame) -> None:
        if top.kind == "test":
            self._step_in_test(unit, top)
        elif unit in "<>":
            self._redirect(top, 1)
        elif unit in "&|" and top.redirects and not top.word.begun:
            self._units.at += 1  # >& and >|
        elif unit == "&" and self._units.sees("&>"):
            self._units.at += 1
        elif unit == "(" and not top.word.quoted and _ARRAY_BEGINS(top.word.text):
            top.word.add(ARRAY)
            self._push(Frame("array", in_word=True))
            self._units.at += 1
        elif unit in " \t\n" and self._begins_test(top):
            self._commands.end_word(top)
            self._push(Frame("test"))
        elif unit in " \t" or (top.kind == "array" and unit != ")"):
            self._commands.end_word(top)
            self._units.at += 1
        else:
            self._commands.end(top)
            self._units.at += 1
            if unit == "(":
                self._push(Frame("code"))
            elif unit == ")":
                self._close_parenthesis(top)
            elif unit == "\n" and self._marks:
                self._read_documents()

    def _close_parenthesis(self, top: Frame) -> None:
        if len(self._stack) == 1 or top.depth or top.kind not in ("code", "array"):
            return
        self._stack.pop()
        if not top.in_word and self._top.kind in WITH_WORDS:
            self._commands.end(self._top)

    def _step_in_test(self, unit: str, top: Frame) -> None:
        ends = top.word.text == "]]" and not top.word.quoted
        self._commands.end_word(top)
        unmatched = unit == ")" and not top.depth
        alone = unit == ";" or (unit == "&" and not self._units.sees("&&"))
        if ends or unmatched or alone:  # the last two: no [[ of bash, which would not run it
            self._commands.end(self._stack.pop())
            return
        if unit in "()":
            top.depth += 1 if unit == "(" else -1
        length = 2 if self._units.sees("&&") or self._units.sees("||") else 1
        if unit not in " \t\n":
            top.words.append(Word(unit, quoted=True))
        elif unit == "\n" and self._marks:
            self._units.at += 1
            self._read_documents()
            return
        self._units.at += length

    def _step_in_arithmetic(self, unit: str, top: Frame) -> None:
        if unit == "(":
            top.depth += 1
        elif top.depth:
            top.depth -= 1
        elif self._units.sees("))"):
            self._stack.pop()
            self._units.at += 1
        self._units.at += 1

    def _step_in_brackets(self, unit: str, top: Frame) -> None:
        if unit == "[" or top.depth:
            top.depth += 1 if unit == "[" else -1
            self._add(unit)
            return
        self._add(unit)
        self._stack.pop()
        if top.kind == "subscript" and (self._units.sees("=") or self._units.sees("+=")):
            self._commands.refuse((value, Place.INDEX) for _, value in top.word.values[top.first :])

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
        self._units.at += 1

    def _after_name(self, unit: str, top: Frame) -> str:
        """What begins with this character: more of the name, or what is done with it."""
        if unit == "[":
            top.depth = 1
            return "index"
        if unit == ":":
            return "text" if any(self._units.sees(f":{sign}") for sign in "-=+?") else "offset"
        if not top.name and unit in " \t\n|":
            return "braces"
        special = top.name in ("", "!", "#") and unit in "!#@*?-$"
        return "name" if special or unit.isalnum() or unit == "_" else "text"

    def _add(self, unit: str) -> None:
        if self._within_word:
            self._top.word.add(unit)
        self._units.at += 1

    def _redirect(self, top: Frame, length: int) -> None:
        """``>``, ``2>``, ``{fd}>``: none of the words of a command, and nor is what follows."""
        if top.word.text.isdecimal():
            top.word = Word()
        elif top.word.text[:1] == "{" and "[" in top.word.text:
            self._commands.refuse(top.word.all(Place.INDEX))
        self._commands.end_word(top)
        top.redirects = True
        self._units.at += length

    # -- what opens and closes --------------------------------------------------------------------

    def _begins_arithmetic(self, top: Frame) -> bool:
        if top.kind not in ("code", "backtick") or not self._units.sees("(("):
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
        if self._units.sees("$(("):
            self._open("arithmetic", 3, quoted)
        elif self._units.sees("$("):
            self._open("code", 2)
        elif self._units.sees("$["):
            self._open("old", 2, quoted)
        elif self._units.sees("${"):
            self._open("parameter", 2, quoted)
        elif self._units.sees("$'") and not quoted:
            self._units.at += 1
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
        self._units.at += length

    def _toggle_double(self, top: Frame) -> None:
        if top.kind == "double":
            self._stack.pop()
        else:
            self._push(Frame("double", quoted=True, word=top.word))
        top.word.add("")
        top.word.quoted = True
        self._units.at += 1

    def _toggle_backtick(self) -> None:
        open_at = [i for i, frame in enumerate(self._stack) if frame.kind == "backtick"]
        if open_at:
            del self._stack[open_at[-1] :]
        else:
            self._top.word.add("$")
            self._push(Frame("backtick"))
        self._units.at += 1

    # -- stretches read at once -------------------------------------------------------------------

    def _skip(self, length: int, place: Place) -> None:
        for unit in self._units.take(length):
            if isinstance(unit, int):
                self._places[unit] = place

    def _skip_single(self, escapes: bool = False) -> None:
        length = self._units.length_of_single(escapes=escapes)
        if self._within_word:
            inside = self._units.ahead(length - 1)[1:]
            self._top.word.add("".join(unit for unit in inside if isinstance(unit, str)))
            self._top.word.quoted = True
        self._skip(length, Place.SINGLE)

    def _read_mark(self, top: Frame) -> None:
        self._redirect(top, 2)
        top.redirects = False
        self._marks.append(read_mark(self._units))

    def _read_documents(self) -> None:
        marks, self._marks = self._marks, []
        for mark, body in read_bodies(self._units, marks):
            if not mark.quoted:
                depth = self._depth + len(self._stack)
                inside = Scanner(body, self._places, depth, self._unfit(), self._commands.numbers)
                inside.scan()
            for unit in body:
                if isinstance(unit, int):
                    self._commands.put(unit, self._stack[:-1])
                    if mark.quoted:
                        self._places[unit] = Place.FIXED_DOCUMENT
