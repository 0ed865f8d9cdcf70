"""A run as it stands, for reading: headline, steps, and what went wrong where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from shutil import get_terminal_size

from tenure.cli.display.counting import Piece, in_the_end, so_far
from tenure.cli.display.moments import ago, between, local
from tenure.cli.display.paint import bold, dim, in_color, sign
from tenure.cli.display.step_rows import StepRow, in_order, name_width, step_line
from tenure.cli.display.text import cells, counted, neutral, one_line, padded, shorten
from tenure.model.approving import waits_for_approval
from tenure.model.snapshot import (
    Approval,
    HostState,
    ItemState,
    RunSnapshot,
    RunSummary,
    StepState,
)
from tenure.model.status import HostStatus, RunStatus, StepStatus
from tenure.runtime.owners import owner_label
from tenure.runtime.queries import end_reason

_BAD = frozenset({HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN})
_MOST_HOSTS = 10
_MOST_LINES = 5
_WIDEST_NAME = 32


def headline(run: RunSummary, now: datetime) -> str:
    """``✗ failed  rolling-deploy  in 12.3s``"""
    words = [in_color(run.status, f"{sign(run.status)} {run.status}"), bold(run.workflow_name)]
    if run.finished_at is not None:
        words.append(dim(f"in {between(run.started_at or run.created_at, run.finished_at)}"))
    elif run.started_at is not None:
        words.append(dim(f"for {between(run.started_at, now)}"))
    return "  ".join(words)


def step_lines(run: RunSnapshot, now: datetime) -> list[str]:
    width = name_width([step.name for step in run.steps], get_terminal_size().columns)
    return [step_line(_row(step, now), width) for step in in_order(run.steps)]


def _row(step: StepState, now: datetime) -> StepRow:
    elapsed = between(step.started_at, step.finished_at or now)
    return StepRow(step.name, step.kind, step.status, _standing(step), elapsed)


def _standing(step: StepState) -> list[Piece]:
    if step.status is StepStatus.PENDING:
        return [Piece(counted(len(step.hosts), "host"), "pending")]
    if step.started_at is None:
        return [Piece(one_line(step.message or step.status), step.status)]
    counts = Counter(host.status for host in step.hosts.values())
    if step.status is StepStatus.RUNNING:
        return so_far(counts, len(step.hosts))
    return in_the_end(counts)


def trouble_lines(run: RunSnapshot) -> Iterator[str]:
    """Failed hosts and what they said; then the run's own words, if they say more."""
    named = False
    for step in run.steps:
        bad = [(name, host) for name, host in step.hosts.items() if host.status in _BAD]
        if bad:
            named = True
            yield from _bad_hosts(step, bad)
        elif step.status is StepStatus.FAILED:
            named = True
            yield ""
            yield f"  {bold(one_line(step.name))} failed: {one_line(step.message or 'no reason')}"
    said = end_reason(run)
    if said and not named:
        yield ""
        yield f"  {one_line(said)}"
    if run.unconfirmed_hosts:
        shown = ", ".join(map(one_line, run.unconfirmed_hosts[:_MOST_HOSTS]))
        yield f"  nobody saw the tasks end on: {shown}"


def _bad_hosts(step: StepState, bad: list[tuple[str, HostState]]) -> Iterator[str]:
    of = f" of {len(step.hosts):,}" if len(step.hosts) > 1 else ""
    yield ""
    yield f"  {bold(one_line(step.name))} {_ends(bad)}{of} {_hosts(len(step.hosts))}"
    width = min(max(cells(one_line(name)) for name, _ in bad[:_MOST_HOSTS]), _WIDEST_NAME)
    for name, host in bad[:_MOST_HOSTS]:
        label = padded(shorten(one_line(name), width), width)
        yield f"    {in_color(host.status, label)}  {_reason(host)}"
        for line in _last_words(host):
            yield f"    {' ' * width}  {dim('│')} {line}"
    if len(bad) > _MOST_HOSTS:
        yield dim(f"    and {len(bad) - _MOST_HOSTS:,} more: tenure status --json has them all")


def _ends(bad: list[tuple[str, HostState]]) -> str:
    """Of what nobody saw end, nobody knows that it failed."""
    unknown = sum(host.status is HostStatus.UNKNOWN for _, host in bad)
    numbers = {"failed": len(bad) - unknown, "is unknown": unknown}
    return " and ".join(f"{end} on {number:,}" for end, number in numbers.items() if number)


def _hosts(number: int) -> str:
    return "host" if number == 1 else "hosts"


def _reason(host: HostState) -> str:
    failed = _culprit(host)
    said = one_line(failed.message or "")
    if not said:
        said = f"exit code {failed.exit_code}" if failed.exit_code is not None else host.status
    if host.attempts > 1:
        unseen = host.status is HostStatus.UNKNOWN
        said += dim(
            f" (in attempt {host.attempts})" if unseen else f" after {host.attempts} attempts"
        )
    return said


def _culprit(host: HostState) -> ItemState:
    """With a loop: the item that failed."""
    return next((item for item in host.items if item.status in _BAD), host)


def _last_words(host: HostState) -> list[str]:
    culprit = _culprit(host)
    text = culprit.stderr or culprit.stdout or ""
    lines = [neutral(line).rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].strip() in (culprit.message or ""):
        return []  # said already
    return [shorten(line, 100) for line in lines[-_MOST_LINES:]]


def approval_lines(run: RunSummary, now: datetime) -> Iterator[str]:
    """Of a run that waits for somebody's yes: what to type."""
    if run.ended or not waits_for_approval(run):
        return
    until = run.approval.expires_at
    time = "" if until is None else f" until {local(until)}"
    yield f"  waits for approval{time}; to let it begin: tenure approve {run.run_id}"


def fact_lines(run: RunSnapshot, place: str, now: datetime) -> Iterator[str]:
    """What else is known, one fact per line."""
    version = f" {run.workflow_version}" if run.workflow_version else ""
    facts = {
        "run": run.run_id,
        "workflow": f"{run.workflow_name}{version}",
        "created": _moment(run.created_at, now),
        "owner": owner_label(run.owner_id) if run.owner_id else "",
        "retry of": run.retry_of or "",
        "labels": " ".join(f"{key}={value}" for key, value in run.labels.items()),
        "approved": _approved(run.approval, now),
        "callback": run.callback_error.error if run.callback_error else "",
        "store": place,
    }
    for name, value in facts.items():
        if value:
            yield f"  {dim(name.ljust(10))}{one_line(value)}"
    for annotation in run.annotations:
        said = " ".join(f"{key}={value}" for key, value in annotation.data.items())
        by = f" ({annotation.by})" if annotation.by else ""
        yield f"  {dim('note'.ljust(10))}{one_line(said + by)}"


def _approved(approval: Approval, now: datetime) -> str:
    if approval.by is None:
        return ""
    when = f", {ago(approval.at, now)}" if approval.at is not None else ""
    return f"by {approval.by}{when}" + (f": {approval.note}" if approval.note else "")


def _moment(at: datetime | None, now: datetime) -> str:
    return f"{local(at)} ({ago(at, now)})" if at is not None else ""


def further_lines(run: RunSnapshot) -> list[str]:
    """What to type next about a run that did not go well."""
    lines = []
    logs = _logs_command(run)
    if logs is not None:
        lines.append(dim(f"all of its output: {logs}"))
    if run.ended and run.status is not RunStatus.SUCCESS:
        lines.append(dim(f"to do what is left: tenure retry {run.run_id}"))
    return ["", *(f"  {line}" for line in lines)] if lines else []


def _logs_command(run: RunSnapshot) -> str | None:
    """For a run in which a host failed; first where it made the run fail."""
    culprit = run.error.step if run.error else None
    for step in sorted(run.steps, key=lambda step: step.name != culprit):
        for name, host in step.hosts.items():
            if host.status in _BAD and host.status is not HostStatus.UNREACHABLE:
                words = ("tenure", "logs", run.run_id, step.name, name)
                return " ".join(quote(one_line(word)) for word in words)
    return None
