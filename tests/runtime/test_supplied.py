"""What a run must be given is asked for before anything is stored or executed."""

from __future__ import annotations

from typing import Any

import pytest

import tenure
from tenure.model.status import RunStatus
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import Puppet, step, workflow

FILE = """\
version: v1
name: deploy
inventory: {hosts: {a: {address: local}, b: {address: local}}}
steps:
  - name: one
    targets: [a]
    action: env.set
    args: {env: {RELEASE: "${{ relase }}"}}
  - name: two
    targets: [b]
    action: env.set
    args: {env: {SAME: "${{ RELEASE ~ suffix }}"}}
"""


def mistakes(error: pytest.ExceptionInfo[tenure.InvalidWorkflow]) -> list[str]:
    return [str(mistake).partition("; ")[0] for mistake in error.value.mistakes]


@pytest.mark.parametrize("how", ["run", "submit"])
async def test_every_variable_that_nobody_defines_is_named_with_its_place(
    queueing: Any, new_runner: NewRunner, how: str
) -> None:
    runner = new_runner(queueing)
    file = tenure.read_workflow(FILE, source="deploy.yaml")
    start = getattr(runner, how)
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await start(file)
    assert mistakes(error) == [
        "deploy.yaml:8:32: steps[0].args.env.RELEASE: 'relase' is not defined here",
        "deploy.yaml:12:39: steps[1].args.env.SAME: 'suffix' is not defined here",
    ]
    assert not (await queueing.list_runs()).items
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await start(file, tenure.RunOptions(vars={"relase": "1"}))
    assert len(mistakes(error)) == 1
    await start(file, tenure.RunOptions(vars={"relase": "1"}, secrets={"suffix": "x"}))


async def test_of_steps_that_a_limit_leaves_without_hosts_nothing_is_asked(
    new_runner: NewRunner,
) -> None:
    options = tenure.RunOptions(vars={"relase": 1}, limit=["a"])
    run = await new_runner().run(tenure.read_workflow(FILE), options)
    assert run.status is RunStatus.SUCCESS


async def test_what_an_earlier_action_may_export_is_left_to_the_run(
    new_runner: NewRunner, act: Puppet
) -> None:
    run = await new_runner().run(workflow(step("one"), step("two", when="NAME == 1")))
    assert run.status is RunStatus.FAILED
    assert "'NAME' is not defined" in (run.steps[1].hosts["local"].message or "")


async def test_mistakes_against_the_runners_own_actions_have_their_place_too(
    new_runner: NewRunner, act: Puppet
) -> None:
    file = tenure.read_workflow(FILE, source="deploy.yaml")
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await new_runner(actions={"act": act}).run(file)
    assert mistakes(error) == [
        "deploy.yaml:7:13: steps[0].action: no action named 'env.set'",
        "deploy.yaml:11:13: steps[1].action: no action named 'env.set'",
    ]


async def test_a_secret_that_is_not_given_is_asked_for(
    queueing: Any, new_runner: NewRunner, act: Puppet
) -> None:
    played = workflow(step("one"), secrets=["password", "token"])
    runner = new_runner(queueing)
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await runner.run(played, tenure.RunOptions(secrets={"password": "x"}))
    assert mistakes(error) == ["workflow: secrets[1]: the secret 'token' is not given"]
    assert (act.begun, (await queueing.list_runs()).items) == ([], ())
    queued = await runner.submit(played)
    assert queued.status is RunStatus.QUEUED, "who executes it has the secrets"


async def test_what_is_missing_has_its_place_in_the_file(new_runner: NewRunner) -> None:
    said = FILE.replace("{{ relase }}", "x").replace("~ suffix", "")
    file = tenure.read_workflow(
        said + "plan: {mode: manual-approve}\nsecrets:\n  - token\n", source="deploy.yaml"
    )
    with pytest.raises(tenure.InvalidWorkflow) as error:
        await new_runner().run(file, tenure.RunOptions(approved_by="me"))
    assert mistakes(error) == ["deploy.yaml:15:5: secrets[0]: the secret 'token' is not given"]
