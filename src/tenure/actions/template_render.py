"""``template.render``: a file on the host, filled in from the variables."""

from __future__ import annotations

from tenure.actions.file_modes import MODE, mode_of
from tenure.actions.host_files import WantedFile, dest_of
from tenure.actions.placing import DEST, PlacingAction
from tenure.actions.sources import encoded, file_beside
from tenure.model.errors import ExpressionError, InvalidArguments
from tenure.ports.action import Task
from tenure.workflow.catalogue import ActionSpec, Argument, Text
from tenure.workflow.text_templates import TextTemplate, compile_template

LONGEST = 1024 * 1024

SPEC = ActionSpec(
    name="template.render",
    description="Fill in a Jinja2 template and write it to the host, in one step and only if it "
    "differs. It has values, `if`, `for` and `set`, with the filters and tests of expressions; a "
    "tag alone on its line leaves no line behind, and `{{ .name }}` is read as `{{ name }}`. A "
    "variable that is not there is an error that names the line.",
    arguments=(
        Argument(
            name="src",
            file_bytes=LONGEST,
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


def want(task: Task) -> WantedFile:
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
        return file_beside(task, "src", LONGEST).decode(), name
    except UnicodeDecodeError as error:
        raise InvalidArguments(
            f"src: {name} is not UTF-8 text at byte {error.start}; use file.copy for other files"
        ) from error


ACTION = PlacingAction(SPEC, want)
