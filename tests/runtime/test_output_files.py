"""``output_path``: a copy of what commands print, in files of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tenure
from tenure.model.status import RunStatus
from tenure.runtime.output import file_stem
from tests.runtime.conftest import NewRunner
from tests.runtime.puppets import workflow

RUN = "run-00001"


def printing(cmd: str, folder: Path, name: str = "say it", **rest: object) -> tenure.Step:
    args = {"cmd": cmd, "output_path": str(folder), "max_output_bytes": 5}
    return tenure.Step(name=name, action="cmd.run", args=args, **rest)  # type: ignore[arg-type]


async def run(new_runner: NewRunner, *steps: tenure.Step, **secrets: str) -> tenure.RunSnapshot:
    options = tenure.RunOptions(run_id=RUN, secrets=secrets)
    return await new_runner().run(workflow(*steps, hosts=["a", "b"]), options)


@pytest.mark.slow
async def test_each_host_item_and_attempt_has_files_of_its_own_with_all_it_printed(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    flaky = 'echo "$host says $item"; echo oops >&2; case $TENURE_TASK_ID in *.1:b:1) exit 1; esac'
    folder = tmp_path / "made" / "for it"
    ended = await run(new_runner, printing(flaky, folder, loop=["x", "y"], retries=1))
    assert ended.status is RunStatus.SUCCESS
    assert {path.name: path.read_text() for path in folder.glob("*-stdout.log")} == {
        f"say_it-{RUN}-0-a-item0-stdout.log": "a says x\n",
        f"say_it-{RUN}-0-a-item1-stdout.log": "a says y\n",
        f"say_it-{RUN}-0-b-item0-stdout.log": "b says x\n",
        f"say_it-{RUN}-0-b-item1-stdout.log": "b says y\n",
        f"say_it-{RUN}-0-b-item1-attempt2-stdout.log": "b says y\n",
    }
    assert {path.read_text() for path in folder.glob("*-stderr.log")} == {"oops\n"}
    item = ended.steps[0].hosts["a"].items[0]
    assert (item.message, item.stdout) == (f"output in {folder}", "a say...(truncated)")


@pytest.mark.slow
async def test_no_secret_gets_into_them(new_runner: NewRunner, tmp_path: Path) -> None:
    says = printing('printf "%s" "$token"; echo " and $token" >&2', tmp_path)
    await run(new_runner, says, token="s3cr3t-Gr8-v4lue")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"***", " and ***\n"}


@pytest.mark.slow
async def test_a_folder_that_cannot_be_made_fails_the_step_before_it_starts(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    ended = await run(new_runner, printing(f"touch {tmp_path}/ran", tmp_path / "taken" / "in"))
    host = ended.steps[0].hosts["a"]
    assert (host.status, host.message) == (
        "failed",
        f"output_path '{tmp_path}/taken/in': Not a directory",
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
async def test_a_full_disk_is_told_and_does_not_end_the_command(
    new_runner: NewRunner, tmp_path: Path
) -> None:
    os.symlink("/dev/full", tmp_path / f"say_it-{RUN}-0-a-stdout.log")
    ended = await run(new_runner, printing("echo one; echo two", tmp_path))
    assert ended.status is RunStatus.SUCCESS
    messages = {name: host.message for name, host in ended.steps[0].hosts.items()}
    assert messages == {
        "a": f"not all output is in {tmp_path}: No space left on device",
        "b": f"output in {tmp_path}",
    }


def test_no_name_leaves_the_folder_and_long_ones_stay_apart() -> None:
    assert file_stem("../../etc/cron.d", RUN, 0, "a/b") == f".._.._etc_cron.d-{RUN}-0-a_b"
    long = [file_stem("ä" * 200, "r" * 128, index, "web1") for index in range(2)]
    assert all(len(stem.encode()) <= 200 for stem in long)
    assert len(set(long)) == 2
