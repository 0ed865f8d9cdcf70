"""Actions that put a file on a host (``file.copy``, ``template.render``): they look first and
change only what differs. Also file modes, and diffs for plans."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import unified_diff
from itertools import chain, islice
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tenure.actions.arguments import encoded, file_beside
from tenure.actions.commands import PassingOutput
from tenure.actions.python import in_thread
from tenure.model.errors import ExpressionError, InvalidArguments, TransportError
from tenure.model.status import HostStatus
from tenure.ports.execution import (
    LET_THROUGH,
    CheckResult,
    Command,
    Output,
    Task,
    TaskResult,
    Transport,
)
from tenure.workflow.catalogue import ActionSpec, Argument, Form, Text
from tenure.workflow.templates import TextTemplate, compile_template
from tenure.workflow.wording import quoted

# Scripts that run on a host to look at a file and to write one. They need a POSIX shell and its
# usual tools; paths and modes are arguments, contents standard input, so no value is read as code.
# Each takes ``DEST NAME`` first: if DEST is a directory, the file gets that name in it.

_FIND = r"""
dest=$1 name=$2 where=here
fail() { printf '%s\n' "$1" >&2; exit 1; }
case $dest in '~/'*) dest=${HOME:?}/${dest#??} ;; esac
if [ -d "$dest" ] || [ "${dest%/}" != "$dest" ]; then
  [ -n "$name" ] || fail "is a directory; name the file in it"
  dest=${dest%/}/$name where=inside
fi
[ ! -d "$dest" ] || fail "is a directory"
[ ! -e "$dest" ] || [ -f "$dest" ] || fail "is no ordinary file"
"""

LOOK = (
    _FIND
    + r"""
size=$3 shown=$4 kind=file content=other
takes_files() {
  folder=${dest%/*}
  while [ -n "$folder" ] && [ ! -e "$folder" ]; do
    case $folder in */*) folder=${folder%/*} ;; *) folder=. ;; esac
  done
  [ -d "${folder:=/}" ] || fail "$folder is no directory"
  [ -w "$folder" ] || fail "no permission to write in $folder"
  case $(stat -f -c %T "$folder" 2>/dev/null) in
    proc | sysfs | cgroup*) fail "no file can be made in $folder" ;;
  esac
}
[ ! -L "$dest" ] || kind=link
if [ ! -e "$dest" ]; then
  [ "$shown" -lt 0 ] || takes_files
  [ $kind = file ] && echo "$where absent" || echo "$where dangling"
  exit 0
fi
set -f
set -- $(ls -dlnL "$dest" 2>/dev/null) - - - - -
if [ ! -r "$dest" ]; then
  content=unreadable
elif [ "$5" = "$size" ] || [ "$5" = - ]; then
  if command -v cmp >/dev/null 2>&1; then
    cmp -s - "$dest" && content=same
  elif [ "$(cksum)" = "$(cksum <"$dest")" ]; then
    content=same
  fi
fi
[ "$shown" -lt 0 ] || [ "$content" = same ] || takes_files
printf '%s\n' "$where $kind $content $1 $3:$4 $5"
if [ "$content" = other ] && [ "$5" != - ] && [ "$5" -le "$shown" ]; then cat "$dest"; fi
"""
)
"""``DEST NAME SIZE SHOWN``, the wanted contents as input. Prints ``WHERE absent``, ``WHERE
dangling`` for a broken link, or ``WHERE KIND CONTENT LETTERS OWNER SIZE`` and, if they differ and
are not longer than ``SHOWN``, the present contents. Fields from ``ls`` are ``-`` without ``ls``.
With ``SHOWN`` (for a plan) it fails where no file can be written; else ``PUT`` reports that. That
``/proc`` takes no files is known by ``stat`` only: for root it looks writable."""

PUT = (
    _FIND
    + r"""
size=$3 mode=$4 owner=$5 temporary=
folder=${dest%/*}
[ -n "$folder" ] || folder=/
[ -d "$folder" ] || mkdir -p "$folder" || exit 1
[ -w "$folder" ] || fail "no permission to write in $folder"
trap '[ -z "$temporary" ] || rm -f "$temporary"' EXIT
trap 'exit 1' HUP INT TERM
temporary=$folder/.tenure-$6
before=$(umask)
umask 077
set -C
cat >"$temporary" || exit 1
umask "$before"
set -- $(cksum <"$temporary")
[ "$2" = "$size" ] || fail "only $2 of $size bytes arrived"
if [ -n "$owner" ]; then
  chown "$owner" "$temporary" 2>/dev/null || chgrp "${owner#*:}" "$temporary" 2>/dev/null
fi
chmod "${mode:-+rw}" "$temporary" && mv -f "$temporary" "$dest" || exit 1
temporary=
"""
)
"""``DEST NAME SIZE MODE OWNER TOKEN``, the contents as input; mode and owner may be empty.

Written to a private temporary file beside it with a random name, and renamed when complete: readers
see the old file or the new one, also if the input is cut off. Except after a KILL the temporary
file is removed. There is no fsync: no tool for it is available everywhere."""

SET_MODE = _FIND + 'chmod "$3" "$dest"\n'
"""``DEST NAME MODE``."""


MOST = 0o7777
_SECRET_MODE = 0o600
_DIGITS = re.compile(r"0?[0-7]{3,4}", re.ASCII)
_LETTERS = re.compile(r"[-bcdlps]([-r][-w][-xsS])([-r][-w][-xsS])([-r][-w][-xtT])")


def read_mode(value: Any) -> int:
    """A file mode from a workflow. ``ValueError`` if it is ambiguous.

    Text is octal, whether it begins with a zero or not. A number was octal in the file if it was
    written with a zero: ``0644`` comes here as 420. Without one (``644``) it is a slip that would
    set an odd mode; a number whose digits look like a mode of their own is therefore refused.
    """
    if isinstance(value, str):
        mode = int(value, 8) if _DIGITS.fullmatch(value) else -1
        if mode < 0 or not (value.startswith("0") or _usual(mode)):
            raise ValueError(f"{quoted(value, 20)} is no file mode")
        return mode
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError("no file mode")
    digits = str(value)
    if value != 0o777 and _DIGITS.fullmatch(digits) and _usual(int(digits, 8)):
        raise ValueError(f"the number {value} may be meant as 0{value} or as {show_mode(value)}")
    return value


def _usual(mode: int) -> bool:
    """Whether the owner may read, the group may do no more than the owner, and others no more than
    the group."""
    owner, group, others = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    return bool(owner & 4) and not group & ~owner and not others & ~group


def _readable(value: Any) -> bool:
    try:
        read_mode(value)
    except ValueError:
        return False
    return True


_FORM = Form(
    called='an octal file mode in quotes, like "0644"',
    fits=_readable,
    pattern="^0?[0-7]{3,4}$",
)
MODE = Argument(
    name="mode",
    types=("string", "integer"),
    form=_FORM,
    description='Octal, in quotes: "0644". Without it a file keeps the mode it has, and a new one '
    "gets what the host gives new files; one with a secret in it gets 0600.",
)


def mode_of(task: Task) -> int | None:
    """``InvalidArguments``."""
    given = task.args.get("mode")
    if given is not None and not _readable(given):
        raise InvalidArguments(f"mode must be {_FORM.called}")
    return None if given is None else read_mode(given)


def show_mode(mode: int) -> str:
    return f"{mode:04o}"


def mode_in(listing: str) -> int | None:
    """The mode from the letters at the begin of an ``ls -l`` line; ``None`` if there are none."""
    found = _LETTERS.match(listing)
    if found is None:
        return None
    mode = 0
    for place, letters in enumerate(found.groups()):
        bits = 4 * (letters[0] == "r") + 2 * (letters[1] == "w") + (letters[2] in "xst")
        special = (0o4000 >> place) * (letters[2] in "sStT")
        mode = mode | special | bits << 3 * (2 - place)
    return mode


_MAX_ANSWER_BYTES = 4096


class WantedFile(Struct, frozen=True, kw_only=True):
    dest: str
    content: bytes
    mode: int | None = None
    """``None``: unchanged, or the host's default for new files."""
    name: str = ""
    """The file name if ``dest`` is a directory."""


class FoundFile(Struct, frozen=True, kw_only=True):
    """The present file on the host."""

    place: str
    """For messages: ``dest``, or the file in it."""
    exists: bool
    link: bool = False
    same: bool = False
    """Whether its contents are the wanted ones."""
    readable: bool = True
    mode: int | None = None
    owner: str = ""
    content: bytes | None = None
    """Present contents, if requested, different from the wanted ones and not too long."""


def dest_of(task: Task) -> str:
    """The argument ``dest``, never to be taken for an option. ``InvalidArguments``."""
    dest = str(task.args["dest"])
    if not dest or "\0" in dest:
        raise InvalidArguments("dest must be the path of a file")
    if dest.startswith("~") and not dest.startswith("~/"):
        raise InvalidArguments("dest: of paths with ~ only ~/… is known")
    return dest if dest.startswith(("/", "~/")) else f"./{dest}"


async def look_at(
    task: Task, transport: Transport, wanted: WantedFile, *, shown: int = 0
) -> FoundFile:
    """Look at a file; present contents of up to ``shown`` bytes are included. Raises
    ``TransportError``."""
    size = str(len(wanted.content))
    answer = _Answer(_MAX_ANSWER_BYTES + shown)
    command = _command(task, LOOK, wanted, size, str(shown or -1), stdin=wanted.content)
    await _run(task, transport, command, answer, f"dest {wanted.dest}")
    return found_in(bytes(answer.kept), wanted, with_content=shown > 0)


def found_in(said: bytes, wanted: WantedFile, *, with_content: bool) -> FoundFile:
    """Parse the output of ``LOOK``. Raises ``TransportError``."""
    line, _, content = said.partition(b"\n")
    where, *facts = line.decode(errors="replace").split() or [""]
    place = f"{wanted.dest.rstrip('/')}/{wanted.name}" if where == "inside" else wanted.dest
    if facts in (["absent"], ["dangling"]):
        return FoundFile(place=place, exists=False, link=facts == ["dangling"])
    if len(facts) != 5:
        raise TransportError(f"dest {place}: the host's answer cannot be understood")
    kind, state, letters, owner, size = facts
    complete = with_content and state == "other" and str(len(content)) == size
    return FoundFile(
        place=place,
        exists=True,
        link=kind == "link",
        same=state == "same",
        readable=state != "unreadable",
        mode=mode_in(letters),
        owner=owner if "-" not in owner else "",
        content=content if complete else None,
    )


async def put(task: Task, transport: Transport, wanted: WantedFile, found: FoundFile) -> None:
    """Write the file atomically. It keeps the owner of the present file, and its mode if none is
    wanted. Raises ``TransportError``."""
    mode = found.mode if wanted.mode is None else wanted.mode
    command = _command(
        task,
        PUT,
        wanted,
        str(len(wanted.content)),
        "" if mode is None else show_mode(mode),
        found.owner,
        token_hex(8),
        stdin=wanted.content,
    )
    await _run(task, transport, command, _Answer(0), f"{found.place} cannot be written")


async def set_mode(
    task: Task, transport: Transport, wanted: WantedFile, found: FoundFile, mode: int
) -> None:
    """``TransportError``."""
    command = _command(task, SET_MODE, wanted, show_mode(mode))
    await _run(task, transport, command, _Answer(0), f"the mode of {found.place} cannot be set")


class _Answer:
    """Keeps the beginning of a script's output."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.kept = bytearray()

    async def write(self, stream: str, data: bytes) -> None:
        if stream == "stdout":
            self.kept += data[: self._most - len(self.kept)]


def _command(
    task: Task, script: str, wanted: WantedFile, *arguments: str, stdin: bytes = b""
) -> Command:
    return Command(
        argv=("/bin/sh", "-c", script, "tenure", wanted.dest, wanted.name, *arguments),
        env={
            "LC_ALL": "C",
            "TENURE_RUN_ID": task.run_id,
            "TENURE_STEP": task.step,
            "TENURE_HOST": task.host.name,
            "TENURE_TASK_ID": task.task_id,
            "TENURE_FENCE": str(task.fence),
        },
        stdin=stdin,
        become=task.become,
    )


async def _run(
    task: Task, transport: Transport, command: Command, answer: _Answer, trouble: str
) -> None:
    passing = PassingOutput(answer, masks=task.masks)
    end = await transport.run(task.host, command, passing)
    await passing.finish()
    if end.code != 0:
        raise TransportError(f"{trouble}: {passing.last_error_line() or f'exit {end.code}'}")


# What would change in a file, for people.


LARGEST = 64 * 1024
"""Bytes of a file that is compared line by line."""
_MOST_LINES = 2000
_SHOWN = 200
_HEAD = 2
_UNENDED = "\\ No newline at end of file"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CALLED = {b"\r\n": "CRLF", b"\n": "LF", b"\r": "CR"}


def difference(old: bytes, new: bytes, place: str) -> str | None:
    """A unified diff, each of its lines one line of text whatever the files hold, cut where it
    stops helping; words, if all that differs are line ends, for every line would be in it and look
    alike. ``None`` if they are no text or too long."""
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return None
    lines = unified_diff(before, after, place, place, "now", "then")
    if old != new and _LINE_END.sub(b"\n", old) == _LINE_END.sub(b"\n", new):
        words = f"only line ends differ: now {_ends(old)}, then {_ends(new)}\n"
        lines = chain(islice(lines, _HEAD), [words])
    shown = [text for line in islice(lines, _SHOWN) for text in _comparable(line)]
    rest = sum(1 for _ in lines)
    if rest:
        shown.append(f"… and {rest} more line{'s'[: rest != 1]}")
    return "\n".join(shown) or None


def is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _lines(data: bytes) -> list[str] | None:
    if len(data) > LARGEST or data.count(b"\n") > _MOST_LINES or not is_text(data):
        return None
    lines = [f"{line}\n" for line in data.decode().split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return lines if lines[-1] else lines[:-1]


def _ends(data: bytes) -> str:
    count = Counter(_LINE_END.findall(data))
    return " and ".join(
        f"{name} ({count[end]} line{'s'[: count[end] != 1]})"
        for end, name in _CALLED.items()
        if count[end]
    )


def _comparable(line: str) -> Iterator[str]:
    text = line.removesuffix("\n")
    yield text if text.isprintable() else "".join(map(_printable, text))
    if text == line:
        yield _UNENDED


def _printable(character: str) -> str:
    shown = character.isprintable() or character == "\t"
    return character if shown else repr(character)[1:-1]


DEST = Argument(
    name="dest",
    required=True,
    in_sight=True,
    description="Path on the host; folders above it are made. `~/` is the home of the task's user; "
    "a relative path begins where the host's commands do.",
)

Want = Callable[[Task], WantedFile]
"""May read files and take its time. ``InvalidArguments``, ``ExpressionError``."""


class PlacingAction:
    """``want`` says what file is wanted where."""

    def __init__(self, spec: ActionSpec, want: Want) -> None:
        self.spec = spec
        self._want = want

    async def apply(self, task: Task, transport: Transport, output: Output) -> TaskResult:
        wanted = await self._wanted(task)
        try:
            done = await _place(task, transport, wanted)
        except LET_THROUGH:
            raise
        except TransportError as error:
            return TaskResult(status=HostStatus.FAILED, kind="file", message=str(error))
        if done:
            await output.write("stdout", f"{done}\n".encode(errors="surrogateescape"))
        return TaskResult(changed=bool(done))

    async def check(self, task: Task, transport: Transport) -> CheckResult:
        wanted = await self._wanted(task)
        found = await look_at(task, transport, wanted, shown=LARGEST)
        return await in_thread(lambda: foreseen(wanted, found), f"compare for {task.task_id}")

    async def _wanted(self, task: Task) -> WantedFile:
        return await in_thread(lambda: _guarded(task, self._want(task)), f"prepare {task.task_id}")


def _guarded(task: Task, wanted: WantedFile) -> WantedFile:
    """A file with a secret in it is for its owner alone, unless the workflow says otherwise."""
    if wanted.mode is None and task.masks.data(wanted.content) != wanted.content:
        return replace(wanted, mode=_SECRET_MODE)
    return wanted


async def _place(task: Task, transport: Transport, wanted: WantedFile) -> str:
    """What was done; nothing if nothing was to be done."""
    found = await look_at(task, transport, wanted)
    if not found.same:
        await put(task, transport, wanted, found)
        return f"wrote {found.place}, {_size(wanted)}"
    if wanted.mode is None or wanted.mode == found.mode:
        return ""
    await set_mode(task, transport, wanted, found, wanted.mode)
    return f"set the mode of {found.place} to {show_mode(wanted.mode)}"


def foreseen(wanted: WantedFile, found: FoundFile) -> CheckResult:
    mode = _mode_change(wanted, found)
    if found.same and not mode:
        return CheckResult(changed=False, summary=f"{found.place} is as wanted")
    if found.same:
        return CheckResult(changed=True, summary=f"would change {found.place}{mode}")
    present = found.content if found.exists else b""
    diff = None if present is None else difference(present, wanted.content, found.place)
    summary = f"would {_verb(found)} {found.place}, {_size(wanted)}{mode}"
    if diff is None and wanted.content:
        summary += _why_not_shown(wanted, found)
    return CheckResult(changed=True, summary=summary, diff=diff)


def _verb(found: FoundFile) -> str:
    if found.link:
        return "put a file in place of the link"
    return "change" if found.exists else "make"


def _size(wanted: WantedFile) -> str:
    length = len(wanted.content)
    return f"{length} byte{'s'[: length != 1]}"


def _mode_change(wanted: WantedFile, found: FoundFile) -> str:
    if wanted.mode is None or wanted.mode == found.mode:
        return ""
    now = f" (now {show_mode(found.mode)})" if found.mode is not None else ""
    return f", mode {show_mode(wanted.mode)}{now}"


def _why_not_shown(wanted: WantedFile, found: FoundFile) -> str:
    if not found.readable:
        return "; what is there cannot be read"
    texts = (wanted.content, found.content or b"")
    return "; too long to show" if all(map(is_text, texts)) else "; not text"


# ``file.copy``: a file beside the workflow, or a text in it, brought to the host.


MAX_COPY_BYTES = 8 * 1024 * 1024
_OTHERWISE = "let the host fetch what is larger (curl, rsync) with cmd.run"

FILE_COPY_SPEC = ActionSpec(
    name="file.copy",
    description="Write a file to the host, in one step and only if it differs. Any bytes, at "
    f"most {MAX_COPY_BYTES // 1024 // 1024} MiB. In a directory it keeps its name; a link becomes "
    "a file.",
    arguments=(
        Argument(
            name="src",
            file_bytes=MAX_COPY_BYTES,
            description="The file to copy, relative to the workflow file.",
        ),
        Argument(name="content", description="The contents, instead of a file."),
        DEST,
        MODE,
    ),
    exactly_one_of=(("src", "content"),),
    exports=None,
)


def file_to_copy(task: Task) -> WantedFile:
    """A directory as ``dest`` takes the file under its own name."""
    dest, mode = dest_of(task), mode_of(task)
    if task.args.get("content") is not None:
        content = encoded(str(task.args["content"]), "content")
        return WantedFile(dest=dest, mode=mode, content=content)
    if task.args.get("src") is None:
        raise InvalidArguments("file.copy needs exactly one of src, content")
    return WantedFile(
        dest=dest,
        mode=mode,
        content=file_beside(task, "src", MAX_COPY_BYTES, _OTHERWISE),
        name=PurePosixPath(str(task.args["src"])).name,
    )


FILE_COPY = PlacingAction(FILE_COPY_SPEC, file_to_copy)


# ``template.render``: a file on the host, filled in from the variables.


MAX_TEMPLATE_BYTES = 1024 * 1024

TEMPLATE_RENDER_SPEC = ActionSpec(
    name="template.render",
    description="Fill in a Jinja2 template and write it to the host, in one step and only if it "
    "differs. It has values, `if`, `for` and `set`, with the filters and tests of expressions; a "
    "tag alone on its line leaves no line behind, and `{{ .name }}` is read as `{{ name }}`. A "
    "variable that is not there is an error that names the line.",
    arguments=(
        Argument(
            name="src",
            file_bytes=MAX_TEMPLATE_BYTES,
            description="The file with the template, relative to the workflow file.",
        ),
        Argument(
            name="template",
            text=Text.FIXED,
            description="The template itself. Values are `{{ name }}`; `${…}` is left as it is.",
        ),
        DEST,
        MODE,
        Argument(
            name="vars",
            types=("object",),
            description="Further variables for the template, above all others.",
        ),
    ),
    exactly_one_of=(("src", "template"),),
    exports=None,
)


def file_to_render(task: Task) -> WantedFile:
    dest, mode = dest_of(task), mode_of(task)
    more = task.args.get("vars") or {}
    if not isinstance(more, dict):
        raise InvalidArguments("vars must be a map of variables")
    text = _template(task).render({**task.vars, **more})
    return WantedFile(dest=dest, mode=mode, content=encoded(text, "the rendered text"))


def _template(task: Task) -> TextTemplate:
    source, name = _source(task)
    try:
        return compile_template(source, name)
    except ExpressionError as error:
        # Unlike a variable that is missing, no step before this one can mend that.
        raise InvalidArguments(str(error)) from error


def _source(task: Task) -> tuple[str, str]:
    if task.args.get("template") is not None:
        return str(task.args["template"]), "template"
    if task.args.get("src") is None:
        raise InvalidArguments("template.render needs exactly one of src, template")
    name = str(task.args["src"])
    try:
        return file_beside(task, "src", MAX_TEMPLATE_BYTES).decode(), name
    except UnicodeDecodeError as error:
        raise InvalidArguments(
            f"src: {name} is not UTF-8 text at byte {error.start}; use file.copy for other files"
        ) from error


TEMPLATE_RENDER = PlacingAction(TEMPLATE_RENDER_SPEC, file_to_render)
