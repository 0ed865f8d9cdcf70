"""Write ``docs/reference/python-api.md`` from the public names of ``tenure``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from tools.generated import table, write_or_check

import tenure

HEAD = """\
# Python API

<!-- Written by `make docs` from the public names of tenure. `make check` compares. -->

Every name below is imported from `tenure`; other modules may change in any version, except
`tenure.ports`, `tenure.model` and `tenure.testing`, which stores of your own need. How to use them:
[Embed Tenure](../guides/embed.md), [Write your own store](../guides/write-your-own-store.md).
Arguments of workflow classes mean what the keys of [the workflow file](workflow.md) mean.
"""
PARTS: dict[str, tuple[str, ...]] = {
    "Execute": ("Runner", "Worker", "RunOptions", "RetryOptions"),
    "Settings": ("Timing", "Pace", "CallbackSettings", "RetentionPolicy"),
    "Workflows": (
        *("load_workflow", "read_workflow", "WorkflowFile", "Workflow", "Step", "Handler"),
        *("Inventory", "HostSpec", "GroupSpec", "Defaults", "Retries", "Rolling", "Verify"),
        *("OnTakeover", "PlanSettings", "PlanMode", "CallbackSpec"),
    ),
    "Records": (
        *("RunSnapshot", "RunSummary", "RunFilter", "Page", "RecordedEvent", "RunStatus"),
        *("StepStatus", "HostStatus", "Recovery", "CallbackPayload"),
    ),
    "Extend": ("action", "Task", "TaskResult", "Recorder", "RunStateNotifier", "RunTracker"),
    "Stores": ("open_store", "RunStateStore", "InMemoryStore", "FileStore"),
}
ERRORS = "Errors"
WITHOUT_MEMBERS = {"FileStore", "InMemoryStore", "RunTracker"}
"""Their protocols say what they can do."""
BOILERPLATE = (
    "Base class for protocol classes",
    "A base class for defining efficient serializable objects",
    "Enum where members are also (and must be) strings",
)


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, tenure.TenureError)


def page(_: str = "") -> str:
    lines = [HEAD]
    for title, names in PARTS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += entry(name, getattr(tenure, name))
    lines += [f"## {ERRORS}", "", "[Errors](errors.md) says what each asks of you.", ""]
    errors = sorted(name for name in tenure.__all__ if is_error(getattr(tenure, name)))
    lines += [f"- [`{name}`](errors.md#{name.lower()})" for name in errors]
    return "\n".join(lines).rstrip() + "\n"


def entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.isclass(value) and issubclass(value, StrEnum):
        yield from said(value)
        yield "One of " + ", ".join(f"`{member}`" for member in value) + "."
        yield ""
    elif inspect.isclass(value) and issubclass(value, msgspec.Struct):
        yield from said(value)
        yield from fields(value)
    elif inspect.isclass(value):
        if Protocol not in value.__bases__:
            yield from signature(name, value)
        yield from said(value)
        if name not in WITHOUT_MEMBERS:
            yield from members(value)
    else:
        yield from signature(name, value)
        yield from said(value)


def said(value: object) -> Iterator[str]:
    """The docstring, as Markdown."""
    text = inspect.getdoc(value) or ""
    if text and not text.startswith(BOILERPLATE):
        for paragraph in text.split("\n\n"):
            yield paragraph.replace("``", "`")
            yield ""


def signature(name: str, value: Any) -> Iterator[str]:
    yield "```python"
    yield from call(name, value)
    yield "```"
    yield ""


def call(name: str, value: Any, prefix: str = "") -> Iterator[str]:
    """On one line if it fits, else an argument a line."""
    shape = inspect.signature(value)
    arguments: list[str] = []
    for key, each in shape.parameters.items():
        if each.kind is each.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        if key != "self":
            arguments.append(argument(each))
    returns = shape.return_annotation
    end = f" -> {returns}" if isinstance(returns, str) and not inspect.isclass(value) else ""
    line = f"{prefix}{name}({', '.join(arguments)}){end}"
    if len(line) <= 100:
        yield line
    else:
        yield from (f"{prefix}{name}(", *(f"    {each}," for each in arguments), f"){end}")


def argument(each: inspect.Parameter) -> str:
    empty = inspect.Parameter.empty
    return f"{each.name}: {each.annotation}" + (
        "" if each.default is empty else f" = {shown(each.default)}"
    )


def shown(value: object) -> str:
    """A default as one would write it; what has no such form is left open."""
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}()"
    text = repr(value.value if isinstance(value, StrEnum) else value)
    return "…" if text.startswith("<") else text


def fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    found = msgspec.structs.fields(struct)
    if struct.__name__ in PARTS["Records"] and struct is not tenure.RunFilter:
        rows = [(f"`{each.name}`", f"`{shown_type(struct, each.name)}`") for each in found]
        yield from table(("field", "type"), rows)
    else:
        all_rows = [
            (f"`{each.name}`", f"`{shown_type(struct, each.name)}`", default(each))
            for each in found
        ]
        yield from table(("field", "type", "default"), all_rows)
    yield ""


def shown_type(struct: type[msgspec.Struct], name: str) -> str:
    owner = next(each for each in struct.__mro__ if name in vars(each).get("__annotations__", {}))
    found = owner.__annotations__[name]
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "**required**"
    if field.default is msgspec.NODEFAULT:
        return "empty"
    return "" if field.default is None else f"`{shown(field.default)}`"


def members(value: type) -> Iterator[str]:
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"#### {value.__name__}.{name}"
            yield ""
            yield from said(member)
        elif inspect.isfunction(member):
            yield f"#### {value.__name__}.{name}"
            yield ""
            yield "```python"
            waits = inspect.iscoroutinefunction(member)
            yield from call(name, member, "await " if waits else "")
            yield "```"
            yield ""
            yield from said(member)


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"python-api.md": page}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
