"""``file.copy``: a file beside the workflow, or a text in it, brought to the host."""

from __future__ import annotations

from pathlib import PurePosixPath

from tenure.actions.file_modes import MODE, mode_of
from tenure.actions.host_files import WantedFile, dest_of
from tenure.actions.placing import DEST, PlacingAction
from tenure.actions.sources import encoded, file_beside
from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.catalogue import ActionSpec, Argument

LONGEST = 8 * 1024 * 1024
_OTHERWISE = "let the host fetch what is larger (curl, rsync) with cmd.run"

SPEC = ActionSpec(
    name="file.copy",
    description="Write a file to the host, in one step and only if it differs. Any bytes, at most "
    f"{LONGEST // 1024 // 1024} MiB. In a directory it keeps its name; a link becomes a file.",
    arguments=(
        Argument(
            name="src",
            file_bytes=LONGEST,
            description="The file to copy, relative to the workflow file.",
        ),
        Argument(name="content", description="The contents, instead of a file."),
        DEST,
        MODE,
    ),
    exactly_one_of=(("src", "content"),),
    exports=None,
)


def want(task: Task) -> WantedFile:
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
        content=file_beside(task, "src", LONGEST, _OTHERWISE),
        name=PurePosixPath(str(task.args["src"])).name,
    )


ACTION = PlacingAction(SPEC, want)
