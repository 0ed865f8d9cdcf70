"""``tenure schema``."""

from __future__ import annotations

import json

from tenure.bootstrap import default_actions
from tenure.cli.display.text import say
from tenure.cli.options import json_option, verb
from tenure.workflow.schema import workflow_schema


@verb("schema", "tenure schema > workflow.schema.json")
@json_option
def command(as_json: bool) -> None:
    """Print the JSON Schema of workflow files, for editors.

    It includes the actions installed here. An editor with a YAML language server uses it if the
    first line of a workflow is:
    # yaml-language-server: $schema=workflow.schema.json
    """
    actions = default_actions()
    schema = workflow_schema({name: action.spec for name, action in actions.items()})
    say(json.dumps(schema, indent=None if as_json else 2))
