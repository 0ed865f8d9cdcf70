"""What the template of a step needs: known before anything runs, if the template is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tenure.model.errors import ExpressionError
from tenure.workflow.catalogue import ActionSpec, TemplateArguments
from tenure.workflow.spec import Step
from tenure.workflow.text_templates import compile_template

Read = Callable[[str, int], str | None]
"""The text of a file beside the workflow, of at most so many bytes; ``None``: not at hand."""


class Need(NamedTuple):
    name: str
    place: str
    """The template and the line."""
    argument: str
    """Of the step: what brings the template."""


class _Template(NamedTuple):
    argument: str
    called: str
    text: str


def needs_of_template(step: Step, spec: ActionSpec, read: Read) -> Iterator[Need]:
    """Variables without which filling it in fails. None of a template that cannot be compiled, nor
    where the step's own variables for it are not known yet."""
    if spec.template is None:
        return
    further = step.args.get(spec.template.variables) or {}
    template = _template_of(step, spec, spec.template, read)
    if template is None or not isinstance(further, dict):
        return
    try:
        needs = compile_template(template.text, template.called).needs
    except ExpressionError:
        return
    for name, line in needs.items():
        if name not in further:
            yield Need(name, f"{template.called}:{line}", template.argument)


def _template_of(
    step: Step, spec: ActionSpec, where: TemplateArguments, read: Read
) -> _Template | None:
    text = step.args.get(where.text)
    if isinstance(text, str):
        return _Template(where.text, where.text, text)
    name = step.args.get(where.file)
    if not isinstance(name, str):
        return None
    most = next((each.file_bytes for each in spec.arguments if each.name == where.file), None)
    text = read(name, most or 0)
    return None if text is None else _Template(where.file, name, text)
