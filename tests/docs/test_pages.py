"""What the pages show is what happens: generated pages, workflows, expressions, commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import python_reference, settings_reference, workflow_reference
from tools.generated import NotThePage
from tools.workflow_reference import NOT_YET, PAGE, PARTS, TABLES, fresh

import tenure
from tenure.actions.registry import MODULES
from tenure.config import READERS, load_settings
from tenure.model.errors import ExpressionError
from tenure.workflow import sandbox
from tenure.workflow.expressions import compile_expression
from tenure.workflow.spec import Handler, Step, Workflow
from tenure.workflow.templates import compile_template
from tests.docs.fences import FENCE, ROOT, Block, blocks

# The generated pages are fresh, and the examples on them are accepted.


@pytest.mark.parametrize("tool", [python_reference, settings_reference])
def test_the_committed_page_of_a_reference_is_fresh(tool: object) -> None:
    assert tool.main(["--check"]) == 0  # type: ignore[attr-defined]


def test_every_public_name_is_on_the_page() -> None:
    grouped = {name for names in python_reference.PARTS.values() for name in names}
    errors = {name for name in tenure.__all__ if python_reference.is_error(getattr(tenure, name))}
    assert grouped | errors == set(tenure.__all__) - {"__version__"}


def test_every_setting_says_what_it_means() -> None:
    assert set(READERS) <= set(settings_reference.meanings())


def test_settings_on_pages_are_accepted(tmp_path: Path) -> None:
    found = [
        block for block in blocks("toml") if block.page.name in ("settings.md", "production.md")
    ]
    assert found
    for block in found:
        (tmp_path / "tenure.toml").write_text(block.body)
        load_settings({}, environ={}, folder=tmp_path)


# What the pages say a workflow prints, or is refused for, is what happens.


def workflow(block: Block) -> tenure.WorkflowFile:
    head = "" if block.body.startswith("version:") else "version: v1\nname: page\n"
    return tenure.read_workflow(head + block.body)


def printed(run: tenure.RunSnapshot) -> Iterator[str]:
    for step in run.steps:
        for host, at in step.hosts.items():
            for task in at.items or (at,):
                for line in (task.stdout or "").splitlines():
                    yield f"{step.name} {host} | {line}"


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("yaml run", "text printed"), ids=str)
async def test_the_workflow_prints_what_the_page_says(block: Block) -> None:
    assert block.below, "nothing says what it prints"
    async with tenure.Runner(tracking=False) as runner:
        run = await runner.run(workflow(block))
    assert run.status == "success", run.error
    # Hosts of a step come in any order on the page, as they do on a terminal.
    assert sorted(printed(run)) == sorted(block.below.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("yaml refused", "text mistakes"), ids=str)
def test_the_workflow_is_refused_for_what_the_page_says(block: Block) -> None:
    with pytest.raises(tenure.InvalidWorkflow) as refused:
        tenure.Runner(tracking=False).run_sync(workflow(block))
    assert [str(mistake) for mistake in refused.value.mistakes] == block.below.splitlines()


def test_pages_do_have_workflows_that_run() -> None:
    assert len(blocks("yaml run", "text printed")) > 8
    assert blocks("yaml refused", "text mistakes")


# Every expression and template on the page gives what the page says.


EXPRESSIONS = ROOT / "docs" / "reference" / "expressions.md"


def values() -> dict[str, Any]:
    (block,) = blocks("yaml values")
    return dict(yaml.safe_load(block.body))


def lines() -> Iterator[tuple[str, str]]:
    """Each expression with what the page says of it."""
    for fence in FENCE.finditer(EXPRESSIONS.read_text()):
        if fence["info"] == "text evaluated":
            for line in fence["body"].splitlines():
                expression, arrow, expected = line.partition(" → ")
                assert arrow, line
                yield expression, expected


def evaluated(expression: str) -> str:
    try:
        return json.dumps(compile_expression(expression).evaluate(values()))
    except ExpressionError as error:
        return f"error: {error}"


def as_said(said: str, found: str) -> bool:
    if not said.startswith("error: "):
        return not found.startswith("error: ") and bool(json.loads(said) == json.loads(found))
    message, _, hint = said.partition("; ")
    return found.startswith(message) and hint in found


def test_each_expression_gives_what_the_page_says() -> None:
    found = [(expression, said, evaluated(expression)) for expression, said in lines()]
    assert len(found) > 50
    assert [each for each in found if not as_said(*each[1:])] == []


@pytest.mark.parametrize("block", blocks("jinja filled", "text filled"), ids=str)
def test_the_template_becomes_what_the_page_shows(block: Any) -> None:
    assert compile_template(block.body, "page").render(values()) == block.below


def test_every_filter_test_and_method_has_its_line() -> None:
    said = "\n".join(expression for expression, _ in lines())
    words = {f"| {name}" for name in sandbox.FILTERS if name != "d"}
    words |= {f"is {name}" for name in sandbox.TESTS}
    words |= {f".{name}(" for methods in sandbox.METHODS.values() for name in methods}
    assert sorted(word for word in words if word not in said) == []


# Commands on the pages do what the pages show.


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines shown below it."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip()]


def pattern(shown: str) -> re.Pattern[str]:
    words = (re.escape(word).replace("…", ".*") for word in shown.split())
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*")


def in_order(shown: list[str], output: str) -> str | None:
    """The first line that is missing, if one is."""
    lines = iter(output.splitlines())
    return next((line for line in shown if not any(map(pattern(line).fullmatch, lines))), None)


def printed_by(command: str, home: Path) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if "TENURE" not in name},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_DATA_HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
    }
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("console run"), ids=str)
def test_the_commands_print_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    for command, shown in commands(block):
        output = printed_by(command, tmp_path)
        assert in_order(shown, output) is None, output


def without_chance(text: str) -> list[str]:
    """The lines without times, ids, durations and the store's place, in one order."""
    text = re.sub(r"\b\d\d:\d\d:\d\d\b", "TIME", text)
    text = re.sub(r"\b[0-9A-Z]{26}\b", "RUN_ID", text)
    text = re.sub(r"\b\d+(\.\d+)?s\b", "DURATION", text)
    text = re.sub(r"\S+/tenure/runs\.db", "STORE", text)
    return sorted(line for line in text.splitlines() if line.strip())


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("console capture"), ids=str)
def test_a_capture_is_all_that_the_command_prints(block: Block, tmp_path: Path) -> None:
    ((command, shown),) = commands(block)
    assert without_chance("\n".join(shown)) == without_chance(printed_by(command, tmp_path))


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert in_order(["b …", "c"], "a\nb  one\nc\n") is None
    assert in_order(["c", "b …"], "a\nb  one\nc\n") == "b …"
    assert in_order(["b"], "a\nb  one\nc\n") == "b"


def test_pages_do_have_commands() -> None:
    assert sum(1 for block in blocks("console run") for _ in commands(block)) > 5


# The tables of the workflow reference are those of the code, as `make docs` writes them.


def test_the_committed_page_is_fresh() -> None:
    assert workflow_reference.main(["--check"]) == 0


def test_a_stale_table_is_noticed_and_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "workflow.md"
    page.write_text(PAGE.read_text().replace("| `50` | hosts at once |", "| `5` | hosts at once |"))
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "run `make docs`" in capsys.readouterr().err
    assert workflow_reference.main(["--folder", str(tmp_path)]) == 0
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 0
    assert page.read_text() == PAGE.read_text()


def test_prose_is_left_alone() -> None:
    assert fresh("before\n" + PAGE.read_text() + "after\n").startswith("before\n")


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_page_that_lacks_a_table_or_has_it_twice_is_refused(name: str) -> None:
    page = PAGE.read_text()
    with pytest.raises(NotThePage, match=name):
        fresh(page.replace(f"<!-- table: {name} -->", ""))
    with pytest.raises(NotThePage, match=name):
        fresh(page + f"<!-- table: {name} -->\n<!-- end -->\n")


def test_a_page_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workflow_reference.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "workflow.md" in capsys.readouterr().err


def test_every_key_and_action_has_its_row() -> None:
    page = PAGE.read_text()
    for struct in (Workflow, Step, Handler):
        assert all(f"`{name}`" in page for name in struct.__struct_fields__)
    assert all(f"### {name}\n" in page for name in MODULES)


def test_what_is_marked_as_not_yet_done_does_exist() -> None:
    keys = {(name, key.name) for name, part in PARTS.items() for key in part.keys}
    assert set(NOT_YET) <= keys
