"""Files that travel with a run: read when it is created, kept in its definition.

Whoever executes the run, now, after a takeover or for a retry, has them as they were; no folder is
looked at again. A name that depends on what a step exports, or on a secret, is known only while the
run lasts, and a file may be made by an earlier step: a run that is executed at once reads such
files where the workflow file is. One that waits for somebody else could not have them: it is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from errno import EINVAL, ENOENT
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from tenure.model.errors import ExpressionError, InvalidWorkflow, Mistake
from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue
from tenure.workflow.plan import Plan
from tenure.workflow.render import CompiledArgs, CompiledLoop, compile_args, compile_loop
from tenure.workflow.spec import Handler, Step
from tenure.workflow.variables import NO_ITEM, Exports

MOST_FILES = 10_000
MOST_BYTES = 32 * 1024 * 1024
"""Of all files of a run together."""

_VARIABLE = "${"
_LARGE = "let the hosts fetch what is large (curl, rsync) with cmd.run"


class FileArgument(Struct, frozen=True, kw_only=True):
    """An argument that names a file, in a step or handler."""

    path: str
    """Where in the workflow, for mistakes."""
    argument: Argument
    text: str
    hosts: tuple[str, ...]
    compiled: CompiledArgs
    loop: CompiledLoop | None = None

    def names(self, exports: Exports) -> Iterator[str | None]:
        """``None`` for one that is not known yet."""
        if _VARIABLE not in self.text:
            yield self.text
            return
        for host in self.hosts:
            try:
                for item in self._items(exports.scope(host)):
                    rendered = self.compiled.render(exports.scope(host, item))
                    name = str(rendered.args[self.argument.name])
                    yield None if _VARIABLE in name else name
            except ExpressionError:
                yield None

    def _items(self, scope: Mapping[str, Any]) -> list[Any]:
        if self.loop is None or "item" not in self.text:
            return [NO_ITEM]
        return self.loop.items(scope)


def file_arguments(plan: Plan, catalogue: Catalogue) -> tuple[FileArgument, ...]:
    """All there are; most workflows have none."""
    found: list[FileArgument] = []
    for step in plan.steps:
        found += _of(step.step, f"steps[{step.index}]", step.hosts, catalogue)
    for place, handler in enumerate(plan.handlers.values()):
        found += _of(handler, f"handlers[{place}]", tuple(plan.hosts), catalogue)
    return tuple(found)


def _of(
    what: Step | Handler, path: str, hosts: tuple[str, ...], catalogue: Catalogue
) -> Iterator[FileArgument]:
    for argument in catalogue[what.action].arguments:
        text = what.args.get(argument.name)
        if argument.file_bytes is None or not isinstance(text, str) or not hosts:
            continue
        loop = what.loop if isinstance(what, Step) else None
        alone = ActionSpec(name=what.action, arguments=(argument,))
        yield FileArgument(
            path=f"{path}.args.{argument.name}",
            argument=argument,
            text=text,
            hosts=hosts,
            compiled=compile_args({argument.name: text}, alone),
            loop=None if loop is None else compile_loop(loop),
        )


class Place(NamedTuple):
    """Where the workflow is, and what mistakes in it call it. With ``files`` these are all there
    are, and no folder is looked at."""

    folder: str
    source: str
    files: Mapping[str, bytes] | None = None


def gather_files(
    wanted: tuple[FileArgument, ...], exports: Exports, place: Place, *, strict: bool
) -> dict[str, bytes]:
    """The files by the names the arguments give them; blocking. ``InvalidWorkflow`` for those that
    are too large, or all together too many, and if ``strict`` for those that cannot travel."""
    gathering = _Gathering(place, strict)
    for each in wanted:
        for name in each.names(exports):
            gathering.take(each, name)
    if gathering.mistakes:
        raise InvalidWorkflow(gathering.mistakes)
    return gathering.found


class _Gathering:
    def __init__(self, place: Place, strict: bool) -> None:
        self._folder, self._source, self._given = place
        self._strict = strict
        self._bytes = 0
        self._seen: set[str] = set()
        self.found: dict[str, bytes] = {}
        self.mistakes: dict[Mistake, None] = {}

    def take(self, by: FileArgument, name: str | None) -> None:
        if name is None:
            if self._strict:
                said = f"{by.text!r} is a name that is known only while the run lasts"
                self._mistake(by, f"{said}: such a file cannot travel with a run that waits")
        elif name not in self._seen:
            self._seen.add(name)
            self._read(by, name, by.argument.file_bytes or 0)

    def _read(self, by: FileArgument, name: str, most: int) -> None:
        try:
            data = self._content(name, most + 1)
        except (OSError, ValueError) as error:
            if self._strict:
                reason = getattr(error, "strerror", None) or error
                self._mistake(by, f"{name} cannot be read: {reason}")
            return
        if len(data) > most:
            self._mistake(by, f"{name} is longer than {most} bytes", _LARGE)
            return
        self._bytes += len(data)
        self.found[name] = data
        if len(self.found) > MOST_FILES or self._bytes > MOST_BYTES:
            most_of_all = f"{MOST_FILES:,} files or {MOST_BYTES // 1024**2} MiB"
            self._mistake(by, f"more than {most_of_all} would travel with the run", _LARGE)
            raise InvalidWorkflow(self.mistakes)

    def _content(self, name: str, most: int) -> bytes:
        """``OSError``, ``ValueError``."""
        if self._given is None:
            return _content(Path(self._folder, name), most)
        if name not in self._given:
            raise OSError(ENOENT, "it is not among the files that came with the workflow")
        return self._given[name]

    def _mistake(self, by: FileArgument, message: str, hint: str | None = None) -> None:
        mistake = Mistake(source=self._source, path=by.path, message=message, hint=hint)
        self.mistakes[mistake] = None


def _content(path: Path, most: int) -> bytes:
    """Of a regular file: a pipe can be read once, if at all. ``OSError``, ``ValueError``."""
    if path.exists() and not path.is_file():
        raise OSError(EINVAL, "it is no regular file")
    with path.open("rb") as file:
        return file.read(most)
