"""Variables for later steps."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.actions import new_registry
from tenure.model.errors import InvalidArguments
from tenure.ports.execution import CheckResult, TaskResult
from tenure.transports.routing import UnreachableTransport
from tests.actions.making import new_task
from tests.transports.keeping import Kept

NOWHERE = UnreachableTransport()


async def apply(env: Any, **rest: Any) -> TaskResult:
    task = new_task("env.set", {"env": env}, **rest)
    return await new_registry()["env.set"].apply(task, NOWHERE, Kept())


async def test_values_become_text_and_reach_no_host() -> None:
    result = await apply({"A": "x", "N": 3, "B": True, "E": None, "L": [1, "a"]})
    assert result.vars == {"A": "x", "N": "3", "B": "true", "E": "", "L": '[1,"a"]'}


@pytest.mark.parametrize(
    ("before", "changed", "summary"),
    [
        ({}, True, "would set A, B"),
        ({"A": "1"}, True, "would set B"),
        ({"A": "1", "B": "old"}, True, "would set B"),
        ({"A": "1", "B": "2", "C": "3"}, False, "all set already"),
    ],
)
async def test_changed_is_known(before: dict[str, str], changed: bool, summary: str) -> None:
    env = {"A": "1", "B": 2}
    assert (await apply(env, vars=before)).changed is changed
    task = new_task("env.set", {"env": env}, vars=before)
    check = await new_registry()["env.set"].check(task, NOWHERE)
    assert check == CheckResult(changed=changed, summary=summary)


@pytest.mark.parametrize("env", [None, {}, [], "A=1"])
async def test_at_least_one_variable(env: Any) -> None:
    with pytest.raises(InvalidArguments, match="at least one variable"):
        await apply(env)


@pytest.mark.parametrize("name", ["", "  "])
async def test_no_blank_names(name: str) -> None:
    with pytest.raises(InvalidArguments, match="must not be blank"):
        await apply({"A": "1", name: "2"})
