"""The guides and the pages for operators: their programs run, their numbers are true."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure.config import READERS, Settings, load_settings
from tenure.stores.postgres.pools import LOOK_EVERY_S
from tenure.stores.postgres.schema import migrations
from tests.docs.fences import FENCE, PAGES, ROOT, Block, blocks
from tests.free_port import free_port

# The page about PostgreSQL tells of every table and every number there is.


POSTGRESQL = (Path(__file__).parents[2] / "docs" / "operations" / "postgresql.md").read_text()


def test_every_table_is_told_of_and_no_other() -> None:
    made = {
        name for _, text in migrations() for name in re.findall(r"create table tenure\.(\w+)", text)
    }
    rows = POSTGRESQL.partition("| table | a row is |")[2].partition("\n\n")[0].splitlines()[2:]
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == made | {"migrations"}


def test_numbers_of_connections_are_those_that_are_counted() -> None:
    """Counted in ``tests/postgres/test_connection_count.py``."""
    found = re.findall(
        r"^\| ([^|]+) \| `2 × connections \+ (\d)` \| (\d) \|", POSTGRESQL, re.MULTILINE
    )
    assert [
        (process.split(",")[0].strip("`"), int(more), int(all_)) for process, more, all_ in found
    ] == [
        ("worker", 5, 9),
        ("tenure run", 4, 8),
        ("gateway", 3, 7),
    ]


def test_how_often_the_schema_is_looked_at() -> None:
    assert f"every {LOOK_EVERY_S:g} seconds while it uses the store" in POSTGRESQL


# What the page about leases tells people to set can be set.


LEASES = ROOT / "docs/operations/leases.md"


def rows() -> list[tuple[str, dict[str, str]]]:
    """Who is meant, and which settings the row names."""
    table = LEASES.read_text().split("## What to set")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    return [(whom.strip(), dict(re.findall(r'`(\w+) = "(\w+)"`', what))) for whom, what, _ in cells]


ROWS = rows()


def test_the_table_has_rows_that_set_something() -> None:
    assert len(ROWS) >= 6
    named = {name for _, settings in ROWS for name in settings}
    assert {"lease_duration", "renew_interval", "poll_interval"} <= named <= set(READERS)


def as_settings(given: dict[str, str], folder: Path) -> Settings:
    lines = [f'{name} = "{value}"' for name, value in given.items()]
    (folder / "tenure.toml").write_text("\n".join(lines))
    return load_settings({"store": "memory:"}, environ={}, folder=folder)


@pytest.mark.parametrize("given", [given for _, given in ROWS], ids=[whom for whom, _ in ROWS])
def test_each_row_is_accepted_as_it_stands(given: dict[str, str], tmp_path: Path) -> None:
    settings = as_settings(given, tmp_path)
    assert {settings.source_of(name) for name in given} <= {str(tmp_path / "tenure.toml")}


@pytest.mark.parametrize("given", [given for _, given in ROWS], ids=[whom for whom, _ in ROWS])
def test_each_row_is_accepted_from_python_too(given: dict[str, str], tmp_path: Path) -> None:
    settings = as_settings(given, tmp_path)
    timing = tenure.Timing(
        lease_duration=settings.lease_duration, renew_interval=settings.renew_interval
    )
    tenure.Worker("memory:", timing=timing, broker="redis://h")


# The guide's program, with the guide's workflow.


@pytest.mark.slow
def test_the_program_approves_and_runs(tmp_path: Path) -> None:
    (workflow,), (program,) = blocks("yaml approval"), blocks("python approval")
    (tmp_path / "deploy.yaml").write_text(workflow.body)
    (tmp_path / "program.py").write_text(program.body)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "success ada\n"), ended.stderr


# The programs of the guides, as they are printed: all of them with one token, against one gateway
# as the guides start one.


GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
TENURE = str(Path(sys.executable).with_name("tenure"))


def printed_program(guide: str) -> str:
    text = (GUIDES / guide).read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(program)


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of a program that has a token."""
    place = f"127.0.0.1:{free_port()}"
    home = tmp_path_factory.mktemp("home")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environ = {**plain, "HOME": str(home), "TENURE_STORE": f"sqlite:///{home}/runs.db"}
    made = subprocess.run(
        [TENURE, "token", "create", "shop", "--role", "operator"],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    up = subprocess.Popen(
        [TENURE, "up", "--listen", place], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        assert up.stderr is not None
        assert place in up.stderr.readline()
        yield {**environ, "TENURE_URL": f"http://{place}", "TENURE_TOKEN": made.stdout.strip()}
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guide", "printed"),
    [
        ("query-over-http.md", "success None\nlocal hello Ada\n\n"),
        (
            "watch-live.md",
            "executes: name: countdown\n3\n2\n1\nended: run.success\nwaiting: 0\n",
        ),
    ],
)
def test_the_program_of_the_guide_runs(environ: dict[str, str], guide: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", printed_program(guide)],
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


# The program of the guide, as it is printed, before a gateway with a worker on its other side.


EXPECTED = "run.queued\nrun.running\nrun.success\nlocal hello\n\n"


@pytest.mark.slow
def test_the_program_of_the_guide_runs_and_the_worker_works(tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    home = {**plain, "HOME": str(tmp_path)}
    store = {**home, "TENURE_STORE": f"sqlite:///{tmp_path}/runs.db"}

    def token(name: str, *more: str) -> str:
        made = subprocess.run(
            [TENURE, "token", "create", name, *more],
            env=store, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return made.stdout.strip()

    site = token("site-7", "--role", "worker", "--queue", "default")
    shop = token("shop", "--role", "operator")
    gateway = subprocess.Popen(
        [TENURE, "gateway", "--listen", "127.0.0.1:0"],
        env=store, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    processes: list[subprocess.Popen[Any]] = [gateway]
    try:
        assert gateway.stderr is not None
        (address,) = re.findall(r"http://\S+\d", gateway.stderr.readline())
        away = {**home, "TENURE_STORE": address, "TENURE_TOKEN": site}
        processes.append(subprocess.Popen([TENURE, "worker", "-q"], env=away))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", printed_program("workers-behind-a-firewall.md")],
            env={**home, "TENURE_URL": address, "TENURE_TOKEN": shop},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    assert [process.returncode for process in processes] == [0, 0]


# Every curl example, as it is printed, before a gateway that was just started for the first time.


def curl_blocks() -> list[Block]:
    return blocks("console curl")


def test_every_curl_example_is_one_that_runs() -> None:
    shown = [
        fence["body"]
        for page in PAGES
        for fence in FENCE.finditer(page.read_text())
        if fence["info"].startswith("console") and "$ curl" in fence["body"]
    ]
    assert shown
    assert shown == [block.body for block in curl_blocks()]


@pytest.fixture
def first_start(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    place = f"127.0.0.1:{free_port()}"
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TENURE_", "XDG_"))
    }
    environ = {**plain, "HOME": str(tmp_path)}
    up = subprocess.Popen(
        [TENURE, "up", "--listen", place], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        assert up.stderr is not None
        assert "a new admin token is in" in up.stderr.readline()
        yield place, environ
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("block", curl_blocks(), ids=str)
def test_a_curl_example_works_as_printed(
    first_start: tuple[str, dict[str, str]], block: Block
) -> None:
    place, environ = first_start
    script, shown = ["set -eu"], []
    reading = False
    for line in block.body.splitlines():
        if line.startswith("$ "):
            script.append(line.removeprefix("$ "))
            reading = not _is_whole("\n".join(script))
        elif reading:
            script.append(line)
            reading = not _is_whole("\n".join(script))
        else:
            shown.append(line)
    done = subprocess.run(
        ["bash", "-c", "\n".join(script).replace("127.0.0.1:8080", place)],
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"\}\{", "}\n{", done.stdout)
    for line in shown:
        pattern = ".*".join(re.escape(part.strip()) for part in line.split("…"))
        found = re.search(pattern, printed)
        assert found is not None, (line, done.stdout)
        printed = printed[found.end() :]


def _is_whole(script: str) -> bool:
    """Whether its quotes are closed."""
    return script.count("'") % 2 == 0
