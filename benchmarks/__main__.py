"""Run the measurements, print one table, write it as JSON too.

python -m benchmarks [name …]
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from traceback import print_exc

import msgspec

from benchmarks.figures import Figure, table

HERE = Path(__file__).parent
NOT_SCRIPTS = {
    "__init__",
    "__main__",
    "bare_worker",
    "callback_receivers",
    "constant_server",
    "dbos_process",
    "figures",
    "http_load",
    "passing_runs",
    "pgbench",
    "postgres_server",
    "rivals",
    "runs",
    "worker_process",
    "workload",
}


def scripts() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_SCRIPTS)


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(scripts())
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(scripts())}")
        return 2
    figures: list[Figure] = []
    broken: list[str] = []
    for name in wanted or scripts():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        try:
            figures += import_module(f"benchmarks.{name}").measure()
        except Exception:  # noqa: BLE001  the other figures are worth having all the same
            print_exc()
            broken.append(name)
    print(table(figures))
    if broken:
        print(f"could not be measured: {', '.join(broken)}")
    latest = {
        "at": datetime.now(UTC),
        "figures": [
            {**msgspec.to_builtins(figure), "ratio": figure.ratio, "ok": figure.ok}
            for figure in figures
        ],
    }
    (HERE / "latest.json").write_bytes(msgspec.json.format(msgspec.json.encode(latest)))
    return 0 if not broken and all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
