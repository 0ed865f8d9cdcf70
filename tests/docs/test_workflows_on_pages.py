"""What the pages say a workflow prints, or is refused for, is what happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tenure
from tests.docs.fences import Block, blocks

pytestmark = pytest.mark.slow


def workflow(block: Block) -> tenure.WorkflowFile:
    head = "" if block.body.startswith("version:") else "version: v1\nname: page\n"
    return tenure.read_workflow(head + block.body)


def printed(run: tenure.RunSnapshot) -> Iterator[str]:
    for step in run.steps:
        for host, at in step.hosts.items():
            for task in at.items or (at,):
                for line in (task.stdout or "").splitlines():
                    yield f"{step.name} {host} | {line}"


@pytest.mark.parametrize("block", blocks("yaml run", "text printed"), ids=str)
async def test_the_workflow_prints_what_the_page_says(block: Block) -> None:
    assert block.below, "nothing says what it prints"
    async with tenure.Runner(tracking=False) as runner:
        run = await runner.run(workflow(block))
    assert run.status == "success", run.error
    # Hosts of a step come in any order on the page, as they do on a terminal.
    assert sorted(printed(run)) == sorted(block.below.splitlines())


@pytest.mark.parametrize("block", blocks("yaml refused", "text mistakes"), ids=str)
def test_the_workflow_is_refused_for_what_the_page_says(block: Block) -> None:
    with pytest.raises(tenure.InvalidWorkflow) as refused:
        tenure.Runner(tracking=False).run_sync(workflow(block))
    assert [str(mistake) for mistake in refused.value.mistakes] == block.below.splitlines()


def test_pages_do_have_workflows_that_run() -> None:
    assert len(blocks("yaml run", "text printed")) > 8
    assert blocks("yaml refused", "text mistakes")
