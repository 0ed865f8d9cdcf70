"""What a change does to the steps and hosts of a plain record."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from tenure.model.errors import InvalidTransition, TenureError
from tenure.model.update import HostChange, ItemChange, StepChange
from tenure.testing.machine.plain import (
    HOST_CUT,
    HOST_ENDS,
    HOST_MAY,
    NOW,
    RUN_ENDS,
    STEP_ENDS,
    STEP_MAY,
    UNREACHED,
    Plain,
    plain,
)

Reached = set[tuple[int, str | None]]
"""Steps (host ``None``) and hosts that somebody set a status on; only these are counted."""

_ITEM_FIELDS = (
    "message",
    "kind",
    "exit_code",
    "attempts",
    "changed",
    "stdout",
    "stderr",
    "truncated",
    "vars",
    "withheld",
)


class Refusal(Exception):
    """The model says no, and which error it expects: one of several if several things are wrong
    and no order is promised."""

    def __init__(self, *kinds: type[TenureError]) -> None:
        super().__init__(" or ".join(kind.__name__ for kind in kinds))
        self.kinds = kinds


def fresh_item() -> Plain:
    return {
        "status": "pending",
        "message": None,
        "kind": None,
        "exit_code": None,
        "attempts": 0,
        "changed": None,
        "started_at": None,
        "finished_at": None,
        "stdout": None,
        "stderr": None,
        "truncated": False,
        "vars": {},
        "withheld": [],
    }


def fresh_host() -> Plain:
    return {**fresh_item(), "items": []}


def change_step(record: Plain, reached: Reached, index: int, change: StepChange) -> bool:
    """Apply one step's change; true if a host finished by it."""
    steps: list[Plain] = record["steps"]
    if index >= len(steps):
        _need(index == len(steps))
        steps.append(_planned(index, change))
    step = steps[index]
    status = step["status"] if change.status is UNSET else change.status.value
    moves = status != step["status"]
    if moves:
        _need(status in STEP_MAY.get(step["status"], ()))
        step["status"] = status
        step["started_at" if status == "running" else "finished_at"] = NOW
        reached.add((index, None))
    elif step["status"] in STEP_ENDS:
        _need(change.message is UNSET and not change.hosts)
    if change.message is not UNSET:
        step["message"] = change.message
    finished = False
    for name, host_change in change.hosts.items():
        _need(step["status"] != "pending" and name in step["hosts"])
        host = step["hosts"][name]
        before = host["status"]
        _change_host(host, host_change)
        if host["status"] != before:
            reached.add((index, name))
            finished |= host["status"] in HOST_ENDS
    if step["status"] in STEP_ENDS:
        _need(all(host["status"] != "running" for host in step["hosts"].values()))
        _close_hosts(step)
    return finished


def _planned(index: int, change: StepChange) -> Plain:
    _need(change.plan is not None)
    step: Plain = plain(change.plan)
    return {
        **step,
        "index": index,
        "status": "pending",
        "message": None,
        "started_at": None,
        "finished_at": None,
        "hosts": {name: fresh_host() for name in step["hosts"]},
    }


def _change_host(host: Plain, change: HostChange) -> None:
    """Whoever says anything of a host has started it."""
    _change_item(host, change)
    _need(host["status"] != "pending")
    for position, item_change in sorted(change.items.items()):
        _need(0 <= position <= len(host["items"]))
        if position == len(host["items"]):
            host["items"].append(fresh_item())
        _change_item(host["items"][position], item_change)
    if host["status"] != "running":
        _close_items(host)


def _close_items(host: Plain) -> None:
    """Items follow their host; of one that succeeded or failed all items must be known."""
    end = host["status"]
    for item in host["items"]:
        if item["status"] == "running":
            _need(end in ("canceled", "interrupted", "unreachable", "unknown"))
            item.update(status=end, finished_at=host["finished_at"])
        elif item["status"] == "pending" and end != "unknown":
            known = UNREACHED.get(end, end)
            item.update(status=known, finished_at=host["finished_at"])


def _change_item(item: Plain, change: ItemChange) -> None:
    status = item["status"] if change.status is UNSET else change.status.value
    _need(item["status"] not in HOST_ENDS)
    for name in _ITEM_FIELDS:
        value: Any = getattr(change, name)
        if value is not UNSET:
            item[name] = plain(value)
    if status == item["status"]:
        return
    _need(status in HOST_MAY[item["status"]])
    item["status"] = status
    item["finished_at"] = None if status == "running" else NOW
    if status == "running":
        item["started_at"] = NOW


def close_run(record: Plain, reached: Reached) -> None:
    """Nothing is left pending or running in a run that ended."""
    end = record["status"]
    assert end in RUN_ENDS
    cut: set[str] = set()
    for index, step in enumerate(record["steps"]):
        for name, host in step["hosts"].items():
            if host["status"] == "running":
                _need(end != "success")
                host.update(status=HOST_CUT[end], finished_at=NOW)
                reached.add((index, name))
                cut.add(name)
                _end_items(host, end)
            elif host["status"] == "unknown":
                _end_items(host, end)
        if step["status"] == "running":
            _need(end != "success")
            step.update(status=end, finished_at=NOW)
            reached.add((index, None))
        elif step["status"] == "pending":
            step.update(status=UNREACHED[end], finished_at=NOW)
        _close_hosts(step)
    if end == "canceled" and cut:
        record["unconfirmed_hosts"] = sorted({*record["unconfirmed_hosts"], *cut})


def _end_items(host: Plain, end: str) -> None:
    """The run is over: nobody will look for these again."""
    for item in host["items"]:
        if item["status"] == "running":
            item.update(status=host["status"], finished_at=NOW)
        elif item["status"] == "pending":
            item.update(status=UNREACHED[end], finished_at=NOW)


def _close_hosts(step: Plain) -> None:
    for name, host in step["hosts"].items():
        if host["status"] == "pending":
            end = {"status": UNREACHED[step["status"]], "finished_at": step["finished_at"]}
            step["hosts"][name] = {**fresh_host(), **end}


def counts(record: Plain, reached: Reached) -> Plain:
    by_step: dict[str, int] = {}
    by_host: dict[str, int] = {}
    for index, name in reached:
        step = record["steps"][index]
        tally, status = (
            (by_step, step["status"]) if name is None else (by_host, step["hosts"][name]["status"])
        )
        tally[status] = tally.get(status, 0) + 1
    return {
        "steps": by_step,
        "hosts": by_host,
        "steps_total": len(record["steps"]),
        "hosts_total": sum(len(step["hosts"]) for step in record["steps"]),
    }


def _need(allowed: bool) -> None:
    if not allowed:
        raise Refusal(InvalidTransition)
