"""Scripts: where their text comes from and how they are handed to an interpreter.

The text goes in on standard input: nothing has to be copied to the host, and no limit on the length
of arguments applies.
"""

from __future__ import annotations

from collections.abc import Callable

from tenure.actions.sources import encoded, file_beside
from tenure.actions.surroundings import OUTPUT_PATH, SURROUNDINGS
from tenure.model.errors import InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.catalogue import ActionSpec, Argument, Text
from tenure.workflow.environment import text_of

LONGEST = 1024 * 1024
_SOURCES = ("script", "src", "script_ref")


def script_spec(name: str, description: str, text: Text) -> ActionSpec:
    return ActionSpec(
        name=name,
        description=description,
        arguments=(
            Argument(name="script", text=text, description="The text of the script."),
            Argument(
                name="src",
                file_bytes=LONGEST,
                description="A file with the script, relative to the workflow file.",
            ),
            Argument(name="script_ref", file_bytes=LONGEST, description="Older name of src."),
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
    return file_beside(task, given[0], LONGEST)


def encoded_script(task: Task, argument: str) -> bytes:
    return encoded(str(task.args[argument]), argument)


def arguments_of(task: Task) -> tuple[str, ...]:
    given = task.args.get("args")
    if given is None:
        return ()
    return tuple(map(text_of, given if isinstance(given, list | tuple) else [given]))


def would_run_script(interpreter: str) -> Callable[[Task], str]:
    """Says how many arguments there are, not which: they may hold what nobody should read."""

    def summary(task: Task) -> str:
        place = task.args.get("src") or task.args.get("script_ref")
        what = place or f"a script of {_counted(len(script_of(task).splitlines()), 'line')}"
        given = len(arguments_of(task))
        rest = f", given {_counted(given, 'argument')}" if given else ""
        return f"would run {what} with {interpreter}{rest}"

    return summary


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s'[: number != 1]}"
