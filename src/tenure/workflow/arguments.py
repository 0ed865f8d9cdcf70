"""The arguments of a step: checked against its action, compiled once, rendered per host.

The kind of an argument's text (``catalogue.Text``) decides how values get into it. Scripts never
contain values as text: they contain references, and the values travel in the environment, so that a
hostile value stays a value (``scripts`` refuses places where it would not). In other text the
placeholder is replaced by the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tenure.model.errors import ExpressionError
from tenure.workflow.catalogue import ActionSpec, Argument, Text
from tenure.workflow.environment import entry, environment_of, text_of
from tenure.workflow.placeholders import MISSING, Embedded, Named, split_template
from tenure.workflow.sandbox import LONGEST_TEXT, measured, number_of
from tenure.workflow.scripts import Place, places_in, put_references, reference
from tenure.workflow.wording import called, did_you_mean, instead_of, shown

_FALSE, _TRUE = frozenset({"false", "no", "off", "0"}), frozenset({"true", "yes", "on", "1"})
_TYPE_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}


class Misfit(Struct, frozen=True):
    """A mistake in the arguments; ``name`` is the argument concerned, if there is one."""

    name: str | None
    message: str
    hint: str | None = None
    unknown: bool = False
    """The argument's name itself is the mistake."""


def misfits(args: Mapping[str, Any], spec: ActionSpec) -> Iterator[Misfit]:
    known = {argument.name: argument for argument in spec.arguments}
    for name, value in args.items():
        if name in known:
            yield from _wrong_value(name, value, known[name])
        elif not spec.further_arguments:
            message = f"{spec.name} takes no argument {name!r}"
            yield Misfit(name, message, _instead(name, spec), unknown=True)
    for argument in spec.arguments:
        if argument.required and args.get(argument.name) is None:
            yield Misfit(None, f"{spec.name} needs {argument.name!r}")
    for group in spec.exactly_one_of:
        given = [name for name in group if args.get(name) is not None]
        if len(given) != 1:
            count = "none of them" if not given else " and ".join(given)
            yield Misfit(
                given[1] if given else None,
                f"{spec.name} needs exactly one of {', '.join(group)}, not {count}",
            )
    for group in spec.at_most_one_of:
        given = [name for name in group if args.get(name) is not None]
        if len(given) > 1:
            yield Misfit(given[1], f"{spec.name} takes one of {', '.join(group)}, not several")


def _instead(name: str, spec: ActionSpec) -> str:
    meant = spec.meant_by(name)
    if meant is not None:
        return f"it is called {meant.name!r} here"
    return instead_of(name, (argument.name for argument in spec.arguments), 20)


def _wrong_value(name: str, value: Any, argument: Argument) -> Iterator[Misfit]:
    if value is None and not argument.required:
        return
    if isinstance(value, str) and "${" in value:
        return
    try:
        fitted(value, argument)
    except ExpressionError as error:
        yield Misfit(name, error.message, error.hint)


def fitted(value: Any, argument: Argument, name: Callable[[Any], str] = shown) -> Any:
    """``value`` converted for ``argument``: a number may be written as text and vice versa.

    ``ExpressionError`` if it cannot be converted; ``name`` says how the message may show the value
    (``called`` for the value of a variable).
    """
    if argument.types and not any(_is(value, kind) for kind in argument.types):
        value = _converted(value, argument, name)
    if argument.choices and value not in argument.choices:
        choices = [text_of(choice) for choice in argument.choices]
        hint = did_you_mean(text_of(value), choices)
        raise ExpressionError(f"must be one of {', '.join(choices)}, not {name(value)}", hint=hint)
    if argument.form is not None and not argument.form.fits(value):
        raise ExpressionError(f"must be {argument.form.called}, not {name(value)}")
    return value


def _converted(value: Any, argument: Argument, name: Callable[[Any], str]) -> Any:
    for kind in argument.types:
        if kind == "string" and isinstance(value, bool | int | float):
            return text_of(value)
        if kind == "boolean" and isinstance(value, str | int):
            word = text_of(value).strip().lower()
            if word in _TRUE | _FALSE:
                return word in _TRUE
        number = number_of(value) if isinstance(value, str) else None
        if kind == "number" and number is not None:
            return number
        if kind == "integer" and isinstance(number, int):
            return number
    wanted = " or ".join(_TYPE_NAMES.get(kind, kind) for kind in argument.types)
    raise ExpressionError(f"must be {wanted}, not {name(value)}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, str):
        return kind == "string"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    if isinstance(value, dict):
        return kind == "object"
    if isinstance(value, list | tuple):
        return kind == "array"
    return value is None and kind == "null"


ENV = "env"
PROBE = ActionSpec(
    name="verify",
    arguments=(Argument(name="cmd", required=True, text=Text.SHELL),),
    environment=True,
)
"""How ``verify`` is compiled: as a command like that of ``cmd.run``."""

Path = tuple[str | int, ...]
Renderer = Callable[[Mapping[str, Any], dict[str, str]], Any]
"""From the scope, and the environment of references, which it fills, to the value."""


class Rendered(Struct, frozen=True):
    args: dict[str, Any]
    env: dict[str, str]
    """For the action's processes: variables < ``args.env`` < references. Empty if it starts
    none."""


class CompiledArgs:
    """Compiled arguments. ``render`` is reusable and reentrant. ``args`` are not copied."""

    __slots__ = ("_args", "_environment", "_fields", "_renderers", "in_sight")

    def __init__(self, args: Mapping[str, Any], spec: ActionSpec) -> None:
        self._args = args if isinstance(args, dict) else dict(args)
        self._environment = spec.environment
        self._fields = {argument.name: argument for argument in spec.arguments}
        self._renderers: dict[str, Renderer] = {}
        compiler = _Compiler()
        for name, value in args.items():
            renderer = compiler.compile(value, text_kind(self._fields, name))
            if renderer is not None:
                self._renderers[name] = renderer
            elif name in self._fields and value is not None:
                fit = fitted(value, self._fields[name])
                if fit is not value:
                    self._args = self._args | {name: fit}
        self.in_sight = tuple(
            argument.name
            for argument in spec.arguments
            if argument.in_sight and argument.name in self._renderers
        )
        """Arguments made of values that other users of the host can read."""

    def render(self, scope: Mapping[str, Any]) -> Rendered:
        """``ExpressionError`` names the argument that cannot be rendered for this host."""
        references: dict[str, str] = {}
        args = self._args
        if self._renderers:
            args = args.copy()
            for name, renderer in self._renderers.items():
                args[name] = self._rendered(name, renderer, scope, references)
        if not self._environment:
            return Rendered(args, references)
        env = environment_of(scope)
        for name, value in (args.get(ENV) or {}).items():
            env[name] = entry(name, text_of(value))
        env.update(references)
        return Rendered(args, env)

    def _rendered(
        self, name: str, renderer: Renderer, scope: Mapping[str, Any], env: dict[str, str]
    ) -> Any:
        try:
            value = renderer(scope, env)
            argument = self._fields.get(name)
            return fitted(value, argument, called) if argument else value
        except ExpressionError as error:
            message = f"args.{name}: {error.message}"
            raise ExpressionError(message, hint=error.hint, undefined=error.undefined) from error


def compile_args(args: Mapping[str, Any], spec: ActionSpec) -> CompiledArgs:
    """``ExpressionError`` for the first text that does not compile; ``text_problems`` has all."""
    return CompiledArgs(args, spec)


class CompiledLoop:
    """The items of a loop, for one host."""

    __slots__ = ("_renderer", "_value")

    def __init__(self, loop: Sequence[Any] | str) -> None:
        self._value = loop if isinstance(loop, str) else list(loop)
        self._renderer = _Compiler().compile(self._value, Text.PLAIN)

    def items(self, scope: Mapping[str, Any]) -> list[Any]:
        items = self._renderer(scope, {}) if self._renderer else self._value
        if not isinstance(items, list):
            raise ExpressionError(
                f"loop: needs a list, not {called(items)}",
                hint="split text with |split, read JSON with |fromjson",
            )
        return items


def compile_loop(loop: Sequence[Any] | str) -> CompiledLoop:
    return CompiledLoop(loop)


def text_problems(args: Mapping[str, Any], spec: ActionSpec) -> list[tuple[Path, ExpressionError]]:
    """Every text in ``args`` that cannot be compiled, with its path."""
    fields = {argument.name: argument for argument in spec.arguments}
    found: list[tuple[Path, ExpressionError]] = []
    for name, value in args.items():
        for path, text in texts_in(value, (name,)):
            try:
                _Compiler().compile(text, text_kind(fields, name))
            except ExpressionError as error:
                found += [(path, each) for each in (error, *error.further)]
    return found


def evaluated_in(args: Mapping[str, Any], spec: ActionSpec) -> Iterator[tuple[Path, str, Embedded]]:
    """Every expression evaluated to render ``args``, with its text and that text's path.
    ``ExpressionError`` if one cannot be compiled."""
    fields = {argument.name: argument for argument in spec.arguments}
    for path, text in texts_in(args):
        compiler = _Compiler()
        compiler.compile(text, text_kind(fields, str(path[0])))
        for part in compiler.evaluated:
            yield path, text, part


def evaluated_in_loop(loop: Sequence[Any] | str) -> Iterator[tuple[Path, str, Embedded]]:
    """The same for a loop."""
    for path, text in texts_in(loop):
        for part in split_template(text):
            if isinstance(part, Embedded):
                yield path, text, part


def texts_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from texts_in(each, (*path, key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from texts_in(each, (*path, index))


def text_kind(fields: Mapping[str, Argument], name: str) -> Text:
    """The kind of an argument's text; ``env`` is always plain."""
    argument = fields.get(name)
    return Text.PLAIN if argument is None or name == ENV else argument.text


_Piece = str | tuple[Embedded | Named, str, str]
"""Text of a script; or a value, its reference in the script, and the variable it travels in."""


class _Compiler:
    """Compiles the arguments of one step, numbering the references to values."""

    def __init__(self) -> None:
        self._references = 0
        self.evaluated: list[Embedded] = []
        """Expressions evaluated by rendering."""

    def compile(self, value: Any, kind: Text) -> Renderer | None:
        """``None`` for a constant value."""
        if kind is Text.FIXED:
            return None
        if isinstance(value, dict):
            return self._compile_map(value, kind)
        if isinstance(value, list | tuple):
            return self._compile_list(value, kind)
        if not isinstance(value, str) or "${" not in value:
            return None
        if kind is Text.SHELL:
            return self._compile_shell(value)
        if kind is Text.PYTHON:
            return self._compile_python(value)
        return self._compile_plain(value)

    def _compile_map(self, value: dict[str, Any], kind: Text) -> Renderer | None:
        inner = {key: self.compile(each, kind) for key, each in value.items()}
        changing = {key: renderer for key, renderer in inner.items() if renderer}
        if not changing:
            return None
        return lambda scope, env: (
            value | {key: renderer(scope, env) for key, renderer in changing.items()}
        )

    def _compile_list(self, value: Sequence[Any], kind: Text) -> Renderer | None:
        inner = [(each, self.compile(each, kind)) for each in value]
        if not any(renderer for _, renderer in inner):
            return None
        return lambda scope, env: [
            renderer(scope, env) if renderer else each for each, renderer in inner
        ]

    def _reference(self) -> str:
        self._references += 1
        return f"TENURE_X{self._references}"

    def _compile_shell(self, text: str) -> Renderer | None:
        parts = split_template(text, escapes=False)
        places = iter(places_in(parts))
        pieces: list[_Piece] = []
        unfit: list[ExpressionError] = []
        for part in parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            place = next(places)
            if place is Place.COMMENT or (
                isinstance(part, Named)
                and (len(part.path) == 1 or (place.unfit and not place.evaluated))
            ):
                pieces.append(part.raw)  # a variable of the shell
                continue
            if place.unfit:
                why, instead = place.unfit
                message = f"{part.raw!r}: {why}"
                unfit.append(ExpressionError(message, hint=instead, offset=part.offset))
                continue
            _check_unquoted(part)
            variable = self._reference()
            pieces.append((part, reference(place, variable), variable))
        if unfit:
            first = unfit[0]
            first.further = unfit[1:]
            raise first
        return self._script(pieces)

    def _compile_python(self, text: str) -> Renderer | None:
        parts = split_template(text, escapes=False)
        values = [part for part in parts if isinstance(part, Embedded)]
        variables = [self._reference() for _ in values]
        names = iter(variables)
        pieces: list[_Piece] = []
        for part, said in zip(parts, put_references(parts, variables), strict=True):
            if not isinstance(part, Embedded):
                pieces.append(said)
                continue
            variable = next(names)
            _check_unquoted(part)
            pieces.append(said if said == part.raw else (part, said, variable))
        return self._script(pieces)

    def _script(self, pieces: Sequence[_Piece]) -> Renderer:
        values = (piece[0] for piece in pieces if isinstance(piece, tuple))
        self.evaluated += [value for value in values if isinstance(value, Embedded)]

        def render(scope: Mapping[str, Any], env: dict[str, str]) -> str:
            written = []
            for piece in pieces:
                if isinstance(piece, str):
                    written.append(piece)
                    continue
                part, said, variable = piece
                value = _value_of(part, scope)
                if value is MISSING:
                    written.append(part.raw)
                else:
                    env[variable] = entry(part.raw, text_of(measured(value)))
                    written.append(said)
            return "".join(written)

        return render

    def _compile_plain(self, text: str) -> Renderer | None:
        parts = split_template(text)
        self.evaluated += [part for part in parts if isinstance(part, Embedded)]
        if len(parts) == 1 and isinstance(parts[0], Embedded):
            expression = parts[0].expression
            return lambda scope, env: expression.evaluate(scope)
        if all(isinstance(part, str) for part in parts):
            plain = "".join(part for part in parts if isinstance(part, str))
            return None if plain == text else lambda scope, env: plain

        def render(scope: Mapping[str, Any], env: dict[str, str]) -> str:
            written, left = [], LONGEST_TEXT
            for part in parts:
                value = part if isinstance(part, str) else _value_of(part, scope)
                if value is MISSING and isinstance(part, Named):
                    value = part.raw
                written.append(text_of(measured(value)))
                left -= len(written[-1])
                if left < 0:
                    raise ExpressionError(f"the text would be longer than {LONGEST_TEXT}")
            return "".join(written)

        return render


def _check_unquoted(part: Embedded | Named) -> None:
    if isinstance(part, Embedded) and part.expression.quotes:
        raise ExpressionError(
            f"{part.raw!r}: a value in a script is whole by itself; quotes would become part of it",
            hint="leave out the filter 'quote'",
            offset=part.offset,
        )


def _value_of(part: Embedded | Named, scope: Mapping[str, Any]) -> Any:
    return part.look_up(scope) if isinstance(part, Named) else part.expression.evaluate(scope)
