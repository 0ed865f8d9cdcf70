"""Each import rule refuses what it is there for (``.importlinter``)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")

LADDER = "Imports point down the ladder; a package outside it does not exist"
PURE = "Model, workflow and wire read no clock, file, socket or log"
BOOTSTRAP = "Only bootstrap names adapters"
SHIPPED = "Shipped code never imports the test kit"
STRAYS = [
    (LADDER, "tenure.model.status", "tenure.ports.store"),
    (LADDER, "tenure.runtime.engine", "tenure.stores.memory"),
    (PURE, "tenure.model.status", "time"),
    (PURE, "tenure.model.decide", "uuid"),
    (PURE, "tenure.workflow.spec", "tempfile"),
    (PURE, "tenure.workflow.parse", "importlib"),
    (PURE, "tenure.wire.callbacks", "http"),
    ("Adapters of one port do not know each other", "tenure.stores.memory", "tenure.stores.file"),
    (BOOTSTRAP, "tenure.gateway.routes", "tenure.stores.sqlite"),
    (BOOTSTRAP, "tenure.client", "tenure.stores.memory"),
    (BOOTSTRAP, "tenure.config", "tenure.brokers.redis_streams"),
    (BOOTSTRAP, "tenure.worker", "tenure.transports"),
    (BOOTSTRAP, "tenure.runner", "tenure.actions.registry"),
    (BOOTSTRAP, "tenure.assembly", "tenure.notifiers.http"),
    (BOOTSTRAP, "tenure.workflow_file", "tenure.actions"),
    (BOOTSTRAP, "tenure.gateway_process", "tenure.stores.postgres"),
    (BOOTSTRAP, "tenure.cli", "tenure.stores.file"),
    ("Only its own store names a driver", "tenure.bootstrap", "apsw"),
    ("Only its own broker names a client", "tenure.assembly", "redis"),
    ("Only the gateway names its framework", "tenure.runner", "starlette"),
    (SHIPPED, "tenure.worker", "tenure.testing.clock"),
    (SHIPPED, "tenure.aio", "tenure.testing.faults"),
    ("The test kit knows the model and the ports only", "tenure.testing.clock", "tenure.runtime"),
]


def linted(folder: Path) -> str:
    done = subprocess.run(
        [LINTER, "--no-cache", "--config", ROOT / ".importlinter"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "1000"},
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def objections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By rule, to a copy of all that is shipped with each stray import in it."""
    folder = tmp_path_factory.mktemp("stray")
    shutil.copytree(ROOT / "src" / "tenure", folder / "tenure")
    assert "0 broken" in linted(folder)
    for _, importer, imported in STRAYS:
        path = folder.joinpath(*importer.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path.write_text(f"{path.read_text()}\nimport {imported}\n")
    _, *told = re.split(r"^(.+)\n-{3,}\n", linted(folder), flags=re.MULTILINE)
    return dict(zip(told[::2], told[1::2], strict=True))


@pytest.mark.parametrize(("rule", "importer", "imported"), STRAYS)
def test_stray_import_is_refused(
    objections: dict[str, str], rule: str, importer: str, imported: str
) -> None:
    assert f"{importer} -> {imported}" in objections.get(rule, "")
