"""What an action is given to work on: files beside the workflow, texts in it."""

from __future__ import annotations

from pathlib import Path

from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task


def file_beside(task: Task, argument: str, most: int, otherwise: str = "") -> bytes:
    """The file the argument names, of at most so many bytes; ``otherwise`` tells what to do with a
    larger one. ``InvalidArguments``."""
    name = str(task.args[argument])
    data = task.files.get(name)
    if data is None:
        data = _from_folder(task, argument, name, most)
    if len(data) > most:
        more = f"; {otherwise}" if otherwise else ""
        raise InvalidArguments(f"{argument}: {name} is longer than {most} bytes{more}")
    return data


def _from_folder(task: Task, argument: str, name: str, most: int) -> bytes:
    if task.folder is None:
        raise InvalidArguments(
            f"{argument}: {name} did not travel with the run: it was not there, or its name not "
            "known, when the run was created"
        )
    path = Path(task.folder, name)
    try:
        return _content(path, most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArguments(
            f"{argument}: {path} cannot be read ({reason}); it is looked up from the folder of "
            "the workflow file"
        ) from error


def _content(path: Path, most: int) -> bytes:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is no regular file")  # a pipe might never end
    with path.open("rb") as file:
        return file.read(most)


def encoded(text: str, argument: str) -> bytes:
    """Text of an argument as bytes. ``InvalidArguments``."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArguments(f"{argument} holds half a surrogate pair: no text") from error
