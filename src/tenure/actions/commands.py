"""Actions that run one process (``cmd.run``, ``shell.run``, ``script.shell``, ``script.python``):
the command, its output and exports, and its result."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tenure.actions.arguments import (
    OUTPUT_PATH,
    SURROUNDINGS,
    command,
    copy_of,
    encoded,
    file_beside,
    output_limit,
    wants_printed_exports,
)
from tenure.model.errors import InvalidArguments, InvalidExports, NotStarted, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import (
    LET_THROUGH,
    NOTHING_SECRET,
    CheckResult,
    Command,
    Contacts,
    Copy,
    CutOutput,
    Exit,
    Masking,
    MaskingStream,
    Output,
    Task,
    TaskResult,
    Transport,
)
from tenure.workflow.catalogue import ActionSpec, Argument, Text
from tenure.workflow.environment import text_of
from tenure.workflow.wording import quoted

# A command exports variables (text) to later steps in two ways:
#
# - the file ``$TENURE_OUTPUT``: lines ``KEY=value``, and blocks ``KEY<<EOF`` … ``EOF`` for values
#   of several lines (with any word for ``EOF``). Parsed strictly, errors name their line: a lost
#   variable would be noticed much later, or never.
# - with ``export_vars``, lines ``TENURE_EXPORT:KEY=value`` on standard output (``BOPS_EXPORT:`` and
#   ``KEY: value``, also in ``{}``, in older files). Parsed leniently: a line that is no export is
#   ordinary output.

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MARK = b"_EXPORT:"
_PREFIXES = (b"TENURE_EXPORT:", b"BOPS_EXPORT:")
LONGEST_LINE = 64 * 1024
MOST = 1024 * 1024
"""Bytes of exports that are kept from standard output."""


def parse_exports(data: bytes) -> dict[str, str]:
    """The contents of ``$TENURE_OUTPUT``. A later line wins. ``InvalidExports`` names the line."""
    exported: dict[str, str] = {}
    lines = enumerate(data.removesuffix(b"\n").split(b"\n"), start=1)
    for number, raw in lines:
        line = _decoded(raw, number)
        if not line.strip():
            continue
        name, separator, rest = _split(line)
        if not _NAME.fullmatch(name):
            raise _mistake(number, f"{quoted(name)} is no variable name; write KEY=value")
        if not separator:
            raise _mistake(number, f"nothing is given to {name}; write {name}=value")
        exported[name] = rest if separator == "=" else _block(name, rest, number, lines)
    return exported


def _split(line: str) -> tuple[str, str, str]:
    """At the first ``=`` or ``<<``, whichever comes first."""
    name, separator, value = line.partition("=")
    if "<<" in name:
        return line.partition("<<")
    return name, separator, value


def _block(name: str, end: str, started: int, lines: Iterator[tuple[int, bytes]]) -> str:
    if not end.strip():
        raise _mistake(started, f"{name}<< needs a word that ends the block, as in {name}<<EOF")
    value: list[str] = []
    for number, raw in lines:
        line = _decoded(raw, number)
        if line == end:
            return "\n".join(value)
        value.append(line)
    raise _mistake(started, f"the block of {name} is never ended by a line {quoted(end)}")


def _decoded(raw: bytes, number: int) -> str:
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise _mistake(number, "is not UTF-8 text; encode what is not text") from error
    if "\0" in line:
        raise _mistake(number, "holds a NUL character, which no environment can hold")
    return line


def _mistake(number: int, what: str) -> InvalidExports:
    return InvalidExports(f"$TENURE_OUTPUT, line {number}: {what}")


class PrintedExports:
    """Finds export lines in a stream while it passes by. Holds at most one line of it."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._size = 0
        self._line = b""
        self._overlong = False
        self._problem: str | None = None

    def feed(self, data: bytes) -> None:
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            whole = self._line + head
            if _MARK in whole:
                first, *rest = whole.split(b"\n")
                self._look_at(first, cut=self._overlong)
                for line in rest:
                    self._look_at(line)
            self._line, self._overlong = b"", False
        if not self._overlong:
            self._line += tail
        if len(self._line) > LONGEST_LINE:
            self._line, self._overlong = self._line[:LONGEST_LINE], True

    def finish(self) -> dict[str, str]:
        """What was found. ``InvalidExports`` if something was too long to be kept."""
        self._look_at(self._line, cut=self._overlong)
        if self._problem is not None:
            raise InvalidExports(self._problem)
        return self._found

    def _look_at(self, line: bytes, *, cut: bool = False) -> None:
        line = line.strip()
        if not line.startswith(_PREFIXES):
            return
        if cut or len(line) > LONGEST_LINE:
            self._problem = f"an exported line is longer than {LONGEST_LINE} bytes; use a file"
            return
        self._size += len(line)
        if self._size > MOST:
            self._problem = f"more than {MOST} bytes were exported on standard output"
            return
        self._found.update(_payload(line.partition(b":")[2]))


def _payload(raw: bytes) -> dict[str, str]:
    text = raw.decode(errors="replace").replace("\0", "\ufffd").strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    found = re.search("[=:]", text)
    if found is None:
        return {}
    name, value = text[: found.start()].strip(), text[found.end() :].strip()
    return {name: value} if name else {}


_TAIL_BYTES = 4096
_MAX_MESSAGE_CHARS = 300
CUT = b"...(truncated)"


class PassingOutput:
    """Passes the output of a process on, and collects what its result needs: exports, and the last
    line of stderr.

    Output that is cut here is masked here, since half a secret could not be recognised later.
    Exports are taken from the unmasked output.
    """

    def __init__(
        self,
        output: Output,
        *,
        exports: PrintedExports | None = None,
        limit: int | None = None,
        copy: Output | None = None,
        masks: Masking = NOTHING_SECRET,
    ) -> None:
        self._output = output
        self._copy = copy
        self._exports = exports
        self._limit = limit
        self._masks = masks
        self._masked: dict[str, MaskingStream] = {}
        self._passed: dict[str, int] = {}
        self._tail = b""

    async def write(self, stream: str, data: bytes) -> None:
        if stream == "stdout" and self._exports is not None:
            self._exports.feed(data)
        if self._copy is not None:
            await self._copy.write(stream, data)
        if stream == "stdout" and self._limit is None:
            await self._output.write(stream, data)
            return
        masked = self._masked.get(stream)
        if masked is None:
            masked = self._masked[stream] = self._masks.stream()
        shown = masked.feed(data)
        self._remember(stream, shown)
        await self._pass(stream, data if self._limit is None else self._cut(stream, shown))

    async def finish(self) -> None:
        """Pass on what was held back, when the process has ended."""
        for stream, masked in self._masked.items():
            rest = masked.finish()
            self._remember(stream, rest)
            if self._limit is not None:
                await self._pass(stream, self._cut(stream, rest))

    async def _pass(self, stream: str, data: bytes) -> None:
        if data:
            await self._output.write(stream, data)

    def _remember(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._tail = (
                data[-_TAIL_BYTES:]
                if len(data) >= _TAIL_BYTES
                else (self._tail + data)[-_TAIL_BYTES:]
            )

    def _cut(self, stream: str, data: bytes) -> bytes:
        limit, passed = self._limit or 0, self._passed.get(stream, 0)
        if passed > limit:
            return b""
        self._passed[stream] = passed + len(data)
        room = limit - passed
        if len(data) <= room:
            return data
        if isinstance(self._output, CutOutput):
            self._output.note_cut()
        return data[:room] + CUT

    def last_error_line(self) -> str:
        """The last non-empty line of stderr, for a message. Call ``finish`` before."""
        for line in reversed(self._tail.splitlines()):
            text = "".join(
                each if each.isprintable() else " " for each in line.decode(errors="replace")
            ).strip()
            if text:
                return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"
        return ""


Build = Callable[[Task], Command]
"""Makes the command of a task. Raises ``InvalidArguments``."""


class CommandAction:
    """An action that runs the command of ``build``; ``summary`` describes it for plans."""

    def __init__(self, spec: ActionSpec, build: Build, summary: Callable[[Task], str]) -> None:
        self.spec = spec
        self.build = build
        self._summary = summary

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        exports = PrintedExports() if wants_printed_exports(task) else None
        copy = await copy_of(output, task)
        passing = PassingOutput(
            output, exports=exports, limit=output_limit(task), copy=copy, masks=task.masks
        )
        try:
            try:
                end = await transport.run(task.host, self.build(task), passing)
            finally:
                await passing.finish()
        except LET_THROUGH:
            raise
        except TransportError as error:
            kind = "start" if isinstance(error, NotStarted) else "transport"
            return TaskResult(status=HostStatus.FAILED, kind=kind, message=str(error))
        result = judge(end, passing.last_error_line(), exports)
        return result if copy is None else _with_copy(result, task, copy)

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        self.build(task)
        if isinstance(transport, Contacts):
            await transport.contact(task.host)
        return CheckResult(summary=self._summary(task))


def judge(end: Exit, last_error_line: str, printed: PrintedExports | None = None) -> TaskResult:
    """The result of an ended process. ``changed`` is unknown for a command; exports count only if
    it succeeded."""
    if end.code != 0:
        how = _how(end)
        return TaskResult(
            status=HostStatus.FAILED,
            kind="signal" if end.signal is not None else "exit",
            exit_code=end.code,
            message=f"{how}: {last_error_line}" if last_error_line else how,
        )
    try:
        exported = _exported(end, printed)
    except InvalidExports as error:
        return TaskResult(status=HostStatus.FAILED, kind="exports", exit_code=0, message=str(error))
    return TaskResult(exit_code=0, vars=exported)


def _with_copy(result: TaskResult, task: Task, copy: Copy) -> TaskResult:
    """The result with a note where the copy is, or why it is incomplete."""
    folder = task.args[OUTPUT_PATH.name]
    said = f"output in {folder}"
    if copy.problem is not None:
        said = f"not all output is in {folder}: {copy.problem}"
    return replace(result, message=f"{result.message}; {said}" if result.message else said)


def _how(end: Exit) -> str:
    if end.signal is None:
        return f"exit {end.code}"
    try:
        return f"ended by {signal.Signals(end.signal).name}"
    except ValueError:  # a signal without a name
        return f"ended by signal {end.signal}"


def _exported(end: Exit, printed: PrintedExports | None) -> dict[str, str]:
    if end.exported_cut:
        raise InvalidExports(
            f"more than {len(end.exported)} bytes were written to $TENURE_OUTPUT; "
            "export the name of a file instead"
        )
    exported = printed.finish() if printed is not None else {}
    if end.exported:
        exported.update(parse_exports(end.exported))
    return exported


def would_run(argument: str, how: str = "run") -> Callable[[Task], str]:
    """``would run:`` and the first line of that argument."""

    def summary(task: Task) -> str:
        first, *rest = task.masks.text(str(task.args[argument])).strip().splitlines() or [""]
        more = f" … ({len(rest)} more line{'s'[: len(rest) != 1]})" if rest else ""
        return f"would {how}: {first[:200]}{'…' if len(first) > 200 else ''}{more}"

    return summary


# ``cmd.run``: one command line for ``/bin/sh``.


CMD = Argument(
    name="cmd",
    required=True,
    text=Text.SHELL,
    description="What to run. Variables are in the environment: ${name}.",
)
CMD_RUN_SPEC = ActionSpec(
    name="cmd.run",
    description="Run a command line with /bin/sh. Its exit status decides; there is no input.",
    arguments=(CMD, *SURROUNDINGS, OUTPUT_PATH),
    environment=True,
)


def build_cmd_run(task: Task) -> Command:
    return command(task, "/bin/sh", "-c", task.args["cmd"])


CMD_RUN = CommandAction(CMD_RUN_SPEC, build_cmd_run, would_run("cmd"))


# Scripts: where their text comes from and how they are handed to an interpreter.
#
# The text goes in on standard input: nothing has to be copied to the host, and no limit on the
# length of arguments applies.


MAX_SCRIPT_BYTES = 1024 * 1024
_SOURCES = ("script", "src", "script_ref")


def script_spec(name: str, description: str, text: Text) -> ActionSpec:
    return ActionSpec(
        name=name,
        description=description,
        arguments=(
            Argument(name="script", text=text, description="The text of the script."),
            Argument(
                name="src",
                file_bytes=MAX_SCRIPT_BYTES,
                description="A file with the script, relative to the workflow file.",
            ),
            Argument(
                name="script_ref", file_bytes=MAX_SCRIPT_BYTES, description="Older name of src."
            ),
            Argument(
                name="args",
                types=("array", "string"),
                in_sight=True,
                description="Arguments of the script: a list, or text for a single one. Every user "
                "of the host can read them: a secret among them is refused.",
            ),
            *SURROUNDINGS,
            OUTPUT_PATH,
        ),
        exactly_one_of=(_SOURCES,),
        environment=True,
    )


def script_of(task: Task) -> bytes:
    """``InvalidArguments`` if it cannot be read."""
    given = [name for name in _SOURCES if task.args.get(name) is not None]
    if len(given) != 1:
        raise InvalidArguments(f"{task.action} needs exactly one of {', '.join(_SOURCES)}")
    if given == ["script"]:
        return encoded_script(task, "script")
    return file_beside(task, given[0], MAX_SCRIPT_BYTES)


def encoded_script(task: Task, argument: str) -> bytes:
    return encoded(str(task.args[argument]), argument)


def arguments_of(task: Task) -> tuple[str, ...]:
    given = task.args.get("args")
    if given is None:
        return ()
    return tuple(map(text_of, given if isinstance(given, list | tuple) else [given]))


def would_run_script(interpreter: str) -> Callable[[Task], str]:
    """A summary with the number of arguments only: they may hold secrets."""

    def summary(task: Task) -> str:
        place = task.args.get("src") or task.args.get("script_ref")
        what = place or f"a script of {_counted(len(script_of(task).splitlines()), 'line')}"
        given = len(arguments_of(task))
        rest = f", given {_counted(given, 'argument')}" if given else ""
        return f"would run {what} with {interpreter}{rest}"

    return summary


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"


# ``shell.run``: a shell script written in the workflow file.


SHELL_RUN_SPEC = ActionSpec(
    name="shell.run",
    description="Run a script with /bin/sh, handed over on its standard input.",
    arguments=(
        Argument(
            name="script",
            required=True,
            text=Text.SHELL,
            description="The text of the script. Begin with `set -e` to stop at the first error.",
        ),
        *SURROUNDINGS,
        OUTPUT_PATH,
    ),
    environment=True,
)


def build_shell_run(task: Task) -> Command:
    return command(task, "/bin/sh", "-s", "--", stdin=encoded_script(task, "script"))


SHELL_RUN = CommandAction(SHELL_RUN_SPEC, build_shell_run, would_run("script"))


# ``script.shell``: a shell script, from the workflow file or from a file beside it.


SCRIPT_SHELL_SPEC = script_spec(
    "script.shell", "Run a shell script with arguments, with /bin/sh.", Text.SHELL
)


def build_script_shell(task: Task) -> Command:
    return command(task, "/bin/sh", "-s", "--", *arguments_of(task), stdin=script_of(task))


SCRIPT_SHELL = CommandAction(SCRIPT_SHELL_SPEC, build_script_shell, would_run_script("/bin/sh"))


# ``script.python``: a Python script, run by the host's ``python3``.


SCRIPT_PYTHON_SPEC = script_spec(
    "script.python",
    "Run a Python script with arguments, with the host's python3. Variables are in os.environ.",
    Text.PYTHON,
)


def build_script_python(task: Task) -> Command:
    return command(task, "python3", "-", *arguments_of(task), stdin=script_of(task))


SCRIPT_PYTHON = CommandAction(SCRIPT_PYTHON_SPEC, build_script_python, would_run_script("python3"))
