"""Files of the older runner run as they are, and mean what they meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import tenure
from tenure.model.status import RunStatus

OLDER = Path(__file__).parent / "older"

pytestmark = pytest.mark.slow


async def run(name: str, **options: object) -> tenure.RunSnapshot:
    async with tenure.Runner(tenure.InMemoryStore()) as runner:
        file = tenure.load_workflow(OLDER / f"{name}.yaml")
        return await runner.run(file, tenure.RunOptions(**options))  # type: ignore[arg-type]


def printed(run: tenure.RunSnapshot, step: str) -> dict[str, str | None]:
    (found,) = [each for each in run.steps if each.name == step]
    return {name: host.stdout for name, host in found.hosts.items()}


async def test_exports_conditions_handlers_and_variables_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = await run("pg_restore", approved_by="ann", run_id="restore-1")
    assert ended.status is RunStatus.SUCCESS, ended.error
    assert printed(ended, "find backup") == {"db1": "looking in ./backups...(truncated)"}
    said = "restoring ./backups/20260201.dump on port 5433 with mode fast\n"
    assert printed(ended, "restore") == {"db1": said, "db2": said}, "the workflow's port counts"
    assert printed(ended, "reload") == {"db1": "reloaded primary\n", "db2": "reloaded replica\n"}
    assert {step.name: step.status for step in ended.steps}["not needed"] == "skipped"
    assert (tmp_path / "output" / "restore-restore-1-1-db1-stdout.log").read_text() == said


async def test_what_is_set_what_is_exported_and_failures_that_are_tolerated() -> None:
    ended = await run("failure_handling")
    assert ended.status is RunStatus.SUCCESS, ended.error
    assert {step.name: str(step.status) for step in ended.steps} == {
        "defaults": "success",
        "deploy": "success",
        "event": "failed",
        "check": "failed",
        "report": "success",
        "never": "skipped",
    }
    assert printed(ended, "report") == {"local": "deployed production a b 7\n"}
    assert "wait with wait.until" in (ended.steps[2].message or "")


async def test_templates_with_dots(tmp_path: Path) -> None:
    ended = await run("templates", vars={"folder": str(tmp_path)})
    assert ended.status is RunStatus.SUCCESS, ended.error
    assert printed(ended, "script") == {"local": "hello world, one\nhello world, two\n"}
    assert (tmp_path / "one.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("name", "notices"),
    [
        ("pg_restore", ["env_packages", "tests", "validation_env"]),
        ("failure_handling", ["steps[2].action", "steps[5].action"]),
        ("templates", []),
    ],
)
def test_what_has_no_effect_any_more_is_noticed(name: str, notices: list[str]) -> None:
    file = tenure.load_workflow(OLDER / f"{name}.yaml")
    assert sorted(notice.split(": ")[1] for notice in file.notices) == notices
