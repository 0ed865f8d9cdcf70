"""Files on hosts, whatever transport reaches them."""

from __future__ import annotations

from secrets import token_hex

from msgspec import Struct

from tenure.actions import host_scripts
from tenure.actions.file_modes import mode_in, show_mode
from tenure.actions.passing import PassingOutput
from tenure.model.errors import InvalidArguments, TransportError
from tenure.ports.action import Task
from tenure.ports.transport import Command, Transport

_ANSWER = 4096


class WantedFile(Struct, frozen=True, kw_only=True):
    dest: str
    content: bytes
    mode: int | None = None
    """``None``: as it is, or as the host makes new files."""
    name: str = ""
    """For ``dest`` being a directory."""


class FoundFile(Struct, frozen=True, kw_only=True):
    """What is there now."""

    place: str
    """For messages: ``dest``, or the file in it."""
    exists: bool
    link: bool = False
    same: bool = False
    """Its contents are the wanted ones."""
    readable: bool = True
    mode: int | None = None
    owner: str = ""
    content: bytes | None = None
    """If it was asked for, others than wanted, and not too long."""


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
    """``shown``: how long present contents may be to be brought along. ``TransportError``."""
    size = str(len(wanted.content))
    answer = _Answer(_ANSWER + shown)
    command = _command(
        task, host_scripts.LOOK, wanted, size, str(shown or -1), stdin=wanted.content
    )
    await _run(task, transport, command, answer, f"dest {wanted.dest}")
    return found_in(bytes(answer.kept), wanted, with_content=shown > 0)


def found_in(said: bytes, wanted: WantedFile, *, with_content: bool) -> FoundFile:
    """From what ``LOOK`` says. ``TransportError`` if it says something else."""
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
    """In one step: nobody ever sees a part of it. What was there lends its owner, and its mode if
    none is wanted. ``TransportError``."""
    mode = found.mode if wanted.mode is None else wanted.mode
    command = _command(
        task,
        host_scripts.PUT,
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
    command = _command(task, host_scripts.SET_MODE, wanted, show_mode(mode))
    await _run(task, transport, command, _Answer(0), f"the mode of {found.place} cannot be set")


class _Answer:
    """Keeps the beginning of what a script says."""

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
