"""Workflow files as commands read them that know what their runs would be given."""

from __future__ import annotations

from collections.abc import Container

from tenure.model.errors import InvalidWorkflow
from tenure.workflow.defined import first_uses
from tenure.workflow.parse import in_order
from tenure.workflow_file import WorkflowFile, load_workflow


def load_for(given: Container[str], path: str) -> WorkflowFile:
    """``InvalidWorkflow`` with every mistake; among them, if there are others, the variables that
    are not ``given`` and without which a step could only fail."""
    try:
        return load_workflow(path)
    except InvalidWorkflow as error:
        lacking = [each for each in error.wanted if each.certain and each.name not in given]
        raise InvalidWorkflow(in_order((*error.mistakes, *first_uses(lacking)))) from error
