"""Start-up, as a ratio to an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figure, seconds, typical

ROUNDS = 25


def measure() -> list[Figure]:
    command = str(Path(sys.executable).with_name("tenure"))
    cases = {
        "start: tenure --version": ([command, "--version"], 4.0),
        "start: tenure --help": ([command, "--help"], 8.0),
        "start: import tenure": ([sys.executable, "-c", "import tenure"], 3.0),
    }
    nothing = [sys.executable, "-c", "pass"]
    samples: dict[str, list[float]] = {name: [] for name in ("nothing", *cases)}
    for _ in range(ROUNDS):
        samples["nothing"].append(_run(nothing))
        for name, (arguments, _goal) in cases.items():
            samples[name].append(_run(arguments))
    limit = typical(samples["nothing"]) * 1000
    return [
        Figure(name=name, unit="ms", ours=typical(samples[name]) * 1000, limit=limit, at_most=goal)
        for name, (_, goal) in cases.items()
    ]


def _run(arguments: list[str]) -> float:
    return seconds(lambda: subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True))
