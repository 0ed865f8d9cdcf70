"""Write ``docs/reference/states.md`` from the tables in ``tenure.model.status``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from tools.generated import write_or_check

from tenure.model import status
from tenure.model.status import DeliveryState, HostStatus, RunStatus, StepStatus

HEAD = """\
# States

<!-- Written by `make docs` from src/tenure/model/status.py. `make check` compares. -->

Every status in Tenure changes by these tables and in no other way. A change that is not listed
is refused with `InvalidTransition` and leaves the record as it was.
"""
INTROS = {
    "Run": "An end is final. The same end again is accepted and writes nothing.",
    "Step": "A step is `pending` until it starts.",
    "Host": (
        "`unreachable`: it could not be contacted. `unknown`: its owner died while it ran, or its "
        "run ended while it ran, and its end was not seen. `unknown` is no end: "
        "while the run goes on, a rerun or a late finding settles it."
    ),
    "Delivery": (
        "One callback. A retry leaves it `waiting`. A person may send a settled one again, under "
        "the same id."
    ),
}
FIRST: dict[str, tuple[StrEnum, ...]] = {
    "Run": (RunStatus.QUEUED, RunStatus.RUNNING),
    "Step": (StepStatus.PENDING, StepStatus.RUNNING),
    "Host": (HostStatus.PENDING, HostStatus.RUNNING),
    "Delivery": (DeliveryState.WAITING,),
}
BORN_RUNNING = """
An embedded run is born `running`, with its lease and the first steps and hosts already started,
in one commit."""

State = TypeVar("State", bound=StrEnum)


def ordered(states: Iterable[State]) -> list[State]:
    """As the enumeration lists them, so that the page does not change from run to run."""
    found = set(states)
    return [state for state in type(next(iter(found))) if state in found] if found else []


def diagram(first: tuple[StrEnum, ...], table: Mapping[State, frozenset[State]]) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in first]
    for old in ordered(table):
        lines += [f"    {old} --> {new}" for new in ordered(table[old])]
    lines += [f"    {state} --> [*]" for state in ordered(table) if not table[state]]
    return [*lines, "```"]


def code(states: Iterable[StrEnum]) -> str:
    return ", ".join(f"`{state}`" for state in ordered(states)) or "nothing: this is an end"


def changes(table: Mapping[State, frozenset[State]]) -> list[str]:
    rows = [f"| `{old}` | {code(table[old])} |" for old in ordered(table)]
    return ["| from | may become |", "|---|---|", *rows]


def section(name: str, table: Mapping[State, frozenset[State]]) -> list[str]:
    return [
        f"## {name}",
        "",
        INTROS[name],
        *([BORN_RUNNING] if name == "Run" else []),
        "",
        *diagram(FIRST[name], table),
        "",
        *changes(table),
        "",
    ]


def mapping(ends: Iterable[State], *columns: Mapping[State, StrEnum]) -> list[str]:
    def cell(column: Mapping[State, StrEnum], end: State) -> str:
        return f"`{column[end]}`" if end in column else "the end is refused"

    return [
        f"| `{end}` | " + " | ".join(cell(column, end) for column in columns) + " |"
        for end in ordered(ends)
    ]


def closing() -> list[str]:
    run_ends = [state for state, followers in status.RUN.items() if not followers]
    return [
        "## What an end does to the rest",
        "",
        "In a run that has ended, no step or host is `pending` or `running`.",
        "",
        "| the run ends as | step not reached | step cut short | host cut short |",
        "|---|---|---|---|",
        *mapping(
            run_ends,
            status.STEP_NOT_REACHED,
            status.STEP_CUT_SHORT,
            status.HOST_CUT_SHORT,
        ),
        "",
        "*Not reached* was `pending`, *cut short* was `running`. A run cannot succeed while",
        "something of it runs. `started_at` tells an interrupted host that had begun from one that",
        "had not.",
        "",
        "| the step ends as | host that never started |",
        "|---|---|",
        *mapping(status.HOST_NOT_REACHED, status.HOST_NOT_REACHED),
    ]


def page(_: str = "") -> str:
    lines = [HEAD]
    lines += section("Run", status.RUN)
    lines += section("Step", status.STEP)
    lines += section("Host", status.HOST)
    lines += section("Delivery", status.DELIVERY)
    lines += closing()
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"states.md": page}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
