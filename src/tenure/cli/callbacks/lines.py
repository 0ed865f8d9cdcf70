"""Callbacks for reading: one per line, or one with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from shutil import get_terminal_size

import msgspec

from tenure.cli.display.moments import ago, local, took
from tenure.cli.display.paint import bold, dim, in_color, sign
from tenure.cli.display.text import cells, fitted, neutral, one_line
from tenure.model.status import DeliveryState
from tenure.wire.deliveries import CallbackDetails, CallbackSummary

_LOOKS = {
    DeliveryState.WAITING: "queued",
    DeliveryState.DELIVERED: "success",
    DeliveryState.DEAD: "failed",
}
"""The status that looks like it."""
_TITLES = ("ID", "STATE", "EVENT", "TRIED", "WHEN", "RUN", "TO")
_RUN, _TO = _TITLES.index("RUN"), _TITLES.index("TO")
_LEAST_TO = 12
_GAP = "  "


def state_word(state: DeliveryState) -> str:
    return f"{sign(_LOOKS[state])} {state}"


def in_color_of(state: DeliveryState, text: str) -> str:
    return in_color(_LOOKS[state], text)


def table(found: Sequence[CallbackSummary], now: datetime, *, of_one_run: bool) -> list[str]:
    """As wide as the terminal allows: the target gives way first, then the run."""
    rows = [_row(each, now) for each in found]
    widths = [max(map(cells, column)) for column in zip(_TITLES, *rows, strict=True)]
    if of_one_run or _spare(widths) + widths[_TO] < _LEAST_TO:
        widths[_RUN] = 0
    widths[_TO] = max(widths[_TO] + min(_spare(widths), 0), _LEAST_TO)
    lines = [dim(_GAP.join(fitted(_TITLES, widths)).rstrip())]
    for each, row in zip(found, rows, strict=True):
        id, state, event, *rest = fitted(row, widths)
        words = (id, in_color_of(each.state, state), event, dim(_GAP.join(rest).rstrip()))
        lines.append(_GAP.join(words))
    return lines


def _spare(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return get_terminal_size().columns - sum(shown) - len(_GAP) * (len(shown) - 1)


def _row(each: CallbackSummary, now: datetime) -> tuple[str, ...]:
    return (
        one_line(each.id),
        state_word(each.state),
        one_line(each.type),
        str(each.attempts),
        when(each, now),
        one_line(each.run_id),
        one_line(each.target.url or each.target.name),
    )


def when(each: CallbackSummary, now: datetime) -> str:
    if each.due_at is None:
        return ago(each.settled_at, now)
    seconds = (each.due_at - now).total_seconds()
    return f"in {took(seconds)}" if seconds > 0 else "due"


def details(each: CallbackDetails, now: datetime) -> Iterator[str]:
    name = bold(one_line(each.workflow_name))
    yield f"{in_color_of(each.state, state_word(each.state))}  {one_line(each.type)}  {name}"
    yield ""
    target = each.target
    facts = {
        "id": each.id,
        "run": each.run_id,
        "to": f"{target.url or 'nowhere'} ({target.name}: {', '.join(target.events)})",
        "signed": f"with {target.secret_env}" if target.secret_env else "no",
        "headers": ", ".join(f"{key}: {value}" for key, value in target.headers.items()),
        "attempts": f"{each.attempts}{' since it was redelivered' if each.redelivery else ''}",
        "due": f"{local(each.due_at)} ({when(each, now)})" if each.due_at else "",
        str(each.state): f"{local(each.settled_at)} ({when(each, now)})" if each.settled_at else "",
        "error": each.last_error or "",
    }
    for key, value in facts.items():
        if value:
            yield f"  {dim(key.ljust(10))}{one_line(value)}"
    yield ""
    said = msgspec.json.format(msgspec.json.encode(each.payload), indent=2).decode()
    yield from (neutral(line) for line in said.splitlines())
