"""What importing Tenure needs and costs. Layers are import-linter's job (``.importlinter``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BLOCKER = """
import sys

ABSENT = {
    "aiohttp", "apsw", "asyncpg", "click", "httpx", "hypothesis", "jinja2", "psycopg",
    "prometheus_client", "psycopg2", "psycopg_pool", "pytest", "redis", "rich", "sqlite3",
    "_sqlite3", "starlette", "ulid", "uvicorn", "uvloop", "yaml",
}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)
        return None

sys.meta_path.insert(0, Blocker())
assert not ABSENT & set(sys.modules), "loaded before the test began"
"""
MEMORY_ROUND_TRIP = """
import asyncio, tenure
from tenure.model.snapshot import RunSnapshot
from tenure.model.update import Changes, Effect, NewRun, RunChange, Update

async def main():
    store = tenure.InMemoryStore()
    new = RunSnapshot(run_id="run-00001", workflow_name="tour")
    await store.create_run(NewRun(snapshot=new, update_id="u1"))
    ended = Effect(changes=Changes(run=RunChange(status=tenure.RunStatus.CANCELED)))
    await store.update_run(
        Update(run_id=new.run_id, update_id="u2", base_version=1, effect=ended)
    )
    run = await store.get_run("run-00001")
    page = await store.list_runs()
    print(run.status, run.version, len(page.items))
    await store.close()

asyncio.run(main())
"""
COST = """
import sys
before = set(sys.modules)
import tenure
print(*sorted(set(sys.modules) - before))
assert tenure.__version__
"""


def python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_memory_store_works_with_every_driver_absent() -> None:
    assert python(BLOCKER + MEMORY_ROUND_TRIP) == "canceled 2 1"


def test_the_blocker_blocks() -> None:
    """Otherwise the test above would prove nothing."""
    blocked = "\ntry:\n    import apsw\nexcept ModuleNotFoundError:\n    print('absent')"
    assert python(BLOCKER + blocked) == "absent"


def test_importing_tenure_loads_nothing_heavy() -> None:
    loaded = set(python(COST).split())
    heavy = {"asyncio", "msgspec", "apsw", "click", "logging", "ssl", "socket", "sqlite3"}
    assert not heavy & loaded
    ours = {name for name in loaded if name.partition(".")[0] == "tenure"}
    assert ours == {"tenure", "tenure._version"}


def test_every_public_name_can_be_loaded() -> None:
    listed = "import tenure; print(*[n for n in tenure.__all__ if getattr(tenure, n) is None])"
    assert python(listed) == ""


def test_an_unknown_name_is_an_attribute_error() -> None:
    asked = "import tenure\ntry:\n    tenure.nonsense\nexcept AttributeError as e:\n    print(e)"
    assert "nonsense" in python(asked)
