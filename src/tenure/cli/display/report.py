"""A run as text: headline, steps, failures, facts; and the table of ``tenure list``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from shlex import quote
from shutil import get_terminal_size
from typing import NamedTuple, Protocol, TypeVar

from tenure.cli.display.text import (
    ago,
    between,
    bold,
    cells,
    counted,
    dim,
    fitted,
    in_color,
    local,
    neutral,
    one_line,
    padded,
    shorten,
    sign,
    to_type,
)
from tenure.model.decide import waits_for_approval
from tenure.model.snapshot import Approval, HostState, ItemState, RunSnapshot, RunSummary, StepState
from tenure.model.status import (
    ENDED_HOST,
    TERMINAL_RUN,
    HostStatus,
    Recovery,
    RunStatus,
    StepKind,
    StepStatus,
)
from tenure.runtime.explain import end_reason
from tenure.runtime.owners import OwnerDoubt, doubt_about, owner_label
from tenure.system import presence

# The hosts of a step in a few words.


_ORDER = (
    HostStatus.SUCCESS,
    HostStatus.FAILED,
    HostStatus.UNREACHABLE,
    HostStatus.UNKNOWN,
    HostStatus.CANCELED,
    HostStatus.INTERRUPTED,
    HostStatus.SKIPPED,
)
_TROUBLE_STATUSES = _ORDER[1:6]
_WORDS = {HostStatus.SUCCESS: "ok"}


class Piece(NamedTuple):
    text: str
    status: str | None = None
    """Status whose colour it gets; ``None``: plain."""


def so_far(counts: Mapping[HostStatus, int], total: int) -> list[Piece]:
    """A running step: ``12/50``, ``10 running``, ``1 failed``."""
    ended = sum(counts.get(status, 0) for status in ENDED_HOST)
    found = [Piece(f"{ended:,}/{total:,}")]
    running = counts.get(HostStatus.RUNNING, 0)
    if running:
        found.append(Piece(f"{running:,} running", "running"))
    return found + _each(counts, _TROUBLE_STATUSES)


def in_the_end(counts: Mapping[HostStatus, int]) -> list[Piece]:
    """An ended step: ``48 ok``, ``2 failed``."""
    return _each(counts, _ORDER)


def _each(counts: Mapping[HostStatus, int], order: tuple[HostStatus, ...]) -> list[Piece]:
    return [
        Piece(f"{counts[status]:,} {_WORDS.get(status, status)}", status)
        for status in order
        if counts.get(status)
    ]


# Steps, one line each, for the live view and the report.


_MAX_NAME_WIDTH = 60
_COUNTS_WIDTH = 34
NOT_STARTED = "not started"
_DIM_STATUSES = (StepStatus.PENDING, StepStatus.SKIPPED)


class _Placed(Protocol):
    @property
    def index(self) -> int: ...
    @property
    def notified_by(self) -> int | None: ...


Placed = TypeVar("Placed", bound=_Placed)


def in_order(steps: Iterable[Placed]) -> list[Placed]:
    """A handler follows the step it ran for, if that is known."""

    def place(step: Placed) -> tuple[int, int]:
        return step.index if step.notified_by is None else step.notified_by, step.index

    return sorted(steps, key=place)


class StepRow(NamedTuple):
    name: str
    kind: StepKind
    status: StepStatus
    standing: list[Piece]
    elapsed: str


def name_width(names: Sequence[str], columns: int) -> int:
    """Names are shortened on a narrow terminal: what a step has done matters more."""
    longest = max((cells(one_line(name)) for name in names), default=0) + 2
    return min(longest, _MAX_NAME_WIDTH, max(columns - _COUNTS_WIDTH - 12, 10))


def step_line(row: StepRow, width: int) -> str:
    """``✓ drain    50 ok                        3.1s``"""
    name = one_line(row.name)
    if row.kind is StepKind.HANDLER:
        name = f"↳ {name}"
    name = padded(shorten(name, width), width)
    shown = " · ".join(
        in_color(piece.status, piece.text) if piece.status else piece.text for piece in row.standing
    )
    start = f"  {in_color(row.status, sign(row.status))} "
    line = f"{start}{dim(name) if row.status in _DIM_STATUSES else name}  {shown}"
    if not row.elapsed:
        return line
    taken = sum(cells(piece.text) + 3 for piece in row.standing) - 3
    return f"{line}{' ' * max(_COUNTS_WIDTH - taken, 2)}{dim(row.elapsed)}"


_BAD_STATUSES = frozenset({HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN})
_MAX_HOSTS = 10
_MAX_LINES = 5
_MAX_HOST_WIDTH = 32


def standing_word(run: RunSummary, doubt: OwnerDoubt | None) -> tuple[RunStatus, str]:
    """A run's status, for its colour, and how it is said. One that its process left for good is
    said to have ended already: the next command that writes only writes it down."""
    if doubt is OwnerDoubt.GONE and run.recovery is Recovery.INTERRUPT:
        end = RunStatus.CANCELED if run.cancel_requested_at else RunStatus.INTERRUPTED
        return end, f"{end} (owner gone)"
    return run.status, run.status


def headline(run: RunSummary, now: datetime) -> str:
    """``✗ failed  rolling-deploy  in 12.3s``"""
    color, word = standing_word(run, doubt_about(run, presence))
    words = [in_color(color, f"{sign(color)} {word}"), bold(run.workflow_name)]
    if run.finished_at is not None:
        words.append(dim(f"in {between(run.started_at or run.created_at, run.finished_at)}"))
    elif run.started_at is not None:
        words.append(dim(f"for {between(run.started_at, now)}"))
    return "  ".join(words)


def step_lines(run: RunSnapshot, now: datetime) -> list[str]:
    width = name_width([step.name for step in run.steps], get_terminal_size().columns)
    status, _ = standing_word(run, doubt_about(run, presence))
    over = status in TERMINAL_RUN
    return [step_line(_step_row(step, now, over), width) for step in in_order(run.steps)]


def _step_row(step: StepState, now: datetime, over: bool) -> StepRow:
    elapsed = between(step.started_at, step.finished_at or now)
    return StepRow(step.name, step.kind, step.status, _standing(step, over), elapsed)


def _standing(step: StepState, over: bool) -> list[Piece]:
    """``over``: nothing of the run begins any more."""
    if step.status is StepStatus.PENDING and not over:
        return [Piece(counted(len(step.hosts), "host"), "pending")]
    if step.started_at is None:
        return [Piece(one_line(step.message or NOT_STARTED), step.status)]
    counts = Counter(host.status for host in step.hosts.values())
    if step.status is StepStatus.RUNNING:
        return so_far(counts, len(step.hosts))
    return in_the_end(counts)


def trouble_lines(run: RunSnapshot) -> Iterator[str]:
    """Failed hosts with their messages; then the run's own message, if it says more."""
    named = False
    for step in run.steps:
        bad = [(name, host) for name, host in step.hosts.items() if host.status in _BAD_STATUSES]
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
        shown = ", ".join(map(one_line, run.unconfirmed_hosts[:_MAX_HOSTS]))
        yield f"  the end of the tasks was not confirmed on: {shown}"


def _bad_hosts(step: StepState, bad: list[tuple[str, HostState]]) -> Iterator[str]:
    of = f" of {len(step.hosts):,}" if len(step.hosts) > 1 else ""
    yield ""
    yield f"  {bold(one_line(step.name))} {_ends(bad)}{of} {_hosts(len(step.hosts))}"
    width = min(max(cells(one_line(name)) for name, _ in bad[:_MAX_HOSTS]), _MAX_HOST_WIDTH)
    for name, host in bad[:_MAX_HOSTS]:
        label = padded(shorten(one_line(name), width), width)
        yield f"    {in_color(host.status, label)}  {_reason(host)}"
        for line in _error_output(host):
            yield f"    {' ' * width}  {dim('│')} {line}"
    if len(bad) > _MAX_HOSTS:
        command = to_type("tenure status --json")
        yield dim(f"    and {len(bad) - _MAX_HOSTS:,} more: {command} has them all")


def _ends(bad: list[tuple[str, HostState]]) -> str:
    """Hosts whose end was not seen are not called failed."""
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
    """In a loop: the failed item."""
    return next((item for item in host.items if item.status in _BAD_STATUSES), host)


def _error_output(host: HostState) -> list[str]:
    culprit = _culprit(host)
    text = culprit.stderr or culprit.stdout or ""
    lines = [neutral(line).rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].strip() in (culprit.message or ""):
        return []  # shown already
    return [shorten(line, 100) for line in lines[-_MAX_LINES:]]


def approval_lines(run: RunSummary, now: datetime) -> Iterator[str]:
    """For a run that waits for approval: the command that approves it."""
    if run.ended or not waits_for_approval(run):
        return
    until = run.approval.expires_at
    time = "" if until is None else f" until {local(until)}"
    yield f"  waits for approval{time}; to let it begin: {to_type(f'tenure approve {run.run_id}')}"


def fact_lines(run: RunSnapshot, place: str, now: datetime) -> Iterator[str]:
    """Other facts, one per line."""
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
    """Commands to try after a run that did not go well."""
    lines = []
    logs = _logs_command(run)
    if logs is not None:
        lines.append(dim(f"all of its output: {to_type(logs)}"))
    if run.ended and run.status is not RunStatus.SUCCESS:
        lines.append(dim(to_type(f"to do what is left: tenure retry {run.run_id}")))
    return ["", *(f"  {line}" for line in lines)] if lines else []


def _logs_command(run: RunSnapshot) -> str | None:
    """For a run with a failed host; preferably one that made the run fail."""
    culprit = run.error.step if run.error else None
    for step in sorted(run.steps, key=lambda step: step.name != culprit):
        for name, host in step.hosts.items():
            if host.status in _BAD_STATUSES and host.status is not HostStatus.UNREACHABLE:
                words = ("tenure", "logs", run.run_id, step.name, name)
                return " ".join(quote(one_line(word)) for word in words)
    return None


# Table of runs.


_TITLES = ("RUN", "STATUS", "WORKFLOW", "TASKS", "TOOK", "CREATED")
_NAME = _TITLES.index("WORKFLOW")
_MIN_NAME_WIDTH = 8
_OPTIONAL_COLUMNS = (_TITLES.index("TOOK"), _TITLES.index("TASKS"))
_GAP = "  "
_BAD = (HostStatus.FAILED, HostStatus.UNREACHABLE, HostStatus.UNKNOWN)
_OWNER = {
    OwnerDoubt.GONE: "owner gone",
    OwnerDoubt.SILENT: "owner silent",
    OwnerDoubt.UNHEARD: "owner lost",
}


def run_table(runs: Sequence[RunSummary], now: datetime) -> list[str]:
    """As wide as the terminal allows: the workflow's name is shortened first, then durations are
    left out."""
    doubts = [doubt_about(run, presence) for run in runs]
    rows = [_row(run, doubt, now) for run, doubt in zip(runs, doubts, strict=True)]
    widths = _fit([max(map(cells, column)) for column in zip(_TITLES, *rows, strict=True)])
    lines = [dim(_GAP.join(fitted(_TITLES, widths)).rstrip())]
    for run, doubt, row in zip(runs, doubts, rows, strict=True):
        run_id, status, name, *rest = fitted(row, widths)
        words = (
            run_id,
            in_color(standing_word(run, doubt)[0], status),
            name,
            dim(_GAP.join(rest).rstrip()),
        )
        lines.append(_GAP.join(words))
    return lines


def _fit(widths: list[int]) -> list[int]:
    """A column of width zero is left out."""
    for left_out in (None, *_OPTIONAL_COLUMNS):
        if left_out is not None:
            widths[left_out] = 0
        shown = [width for width in widths if width]
        spare = get_terminal_size().columns - sum(shown) - len(_GAP) * (len(shown) - 1)
        if widths[_NAME] + spare >= _MIN_NAME_WIDTH:
            widths[_NAME] += min(spare, 0)
            return widths
    widths[_NAME] = _MIN_NAME_WIDTH
    return widths


def _row(run: RunSummary, doubt: OwnerDoubt | None, now: datetime) -> tuple[str, ...]:
    color, word = standing_word(run, doubt)
    if doubt is not None and color is run.status:
        word = _OWNER[doubt]
    return (
        run.run_id,
        f"{sign(color)} {word}",
        one_line(run.workflow_name),
        _tasks(run),
        between(run.started_at, run.finished_at or now),
        ago(run.created_at, now),
    )


def _tasks(run: RunSummary) -> str:
    """Hosts of steps that ended well, of all; and how many did not."""
    counts = run.counts
    bad = sum(counts.hosts.get(status, 0) for status in _BAD)
    shown = f"{counts.hosts.get(HostStatus.SUCCESS, 0)}/{counts.hosts_total}"
    return f"{shown} {sign('failed')}{bad}" if bad else shown
