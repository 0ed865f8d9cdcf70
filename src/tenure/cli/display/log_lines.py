"""Output of tasks on a screen: each line with whose it is, if there are several."""

from __future__ import annotations

from collections.abc import Callable

from tenure.cli.display.json_lines import as_json
from tenure.cli.display.paint import dim, in_color, say
from tenure.cli.display.text import cells, neutral, one_line, padded
from tenure.model.snapshot import RunSnapshot
from tenure.ports.log_store import LogKey

_LONGEST_LINE = 1 << 20
_WIDEST = 32


class LineCutter:
    """Hands on whole lines; what has no end yet waits for it, within bounds."""

    def __init__(self, show: Callable[[LogKey, str], None]) -> None:
        self._show = show
        self._open: dict[LogKey, bytes] = {}

    def add(self, key: LogKey, data: bytes) -> None:
        *whole, rest = (self._open.pop(key, b"") + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            whole.append(rest)
        elif rest:
            self._open[key] = rest
        for line in whole:
            self._show(key, line.decode("utf-8", "replace").removesuffix("\r"))

    def end(self) -> None:
        for key, rest in self._open.items():
            self._show(key, rest.decode("utf-8", "replace"))
        self._open.clear()


class TextLines:
    """``web1 | line``; the step's name too if there are several steps."""

    def __init__(self, run: RunSnapshot, *, steps: bool, hosts: bool) -> None:
        self._names = {step.index: one_line(step.name) for step in run.steps}
        self._steps = steps
        self._hosts = hosts
        self._width = min(self._longest(run), _WIDEST)

    def _longest(self, run: RunSnapshot) -> int:
        step = max(map(cells, self._names.values()), default=0) if self._steps else 0
        names = {name for each in run.steps for name in each.hosts} if self._hosts else ()
        host = max((cells(one_line(name)) for name in names), default=0)
        return step + host + (1 if step and host else 0)

    def show(self, key: LogKey, line: str) -> None:
        words = [self._names.get(key.step, str(key.step))] if self._steps else []
        if self._hosts:
            words.append(one_line(key.host))
        if key.item is not None:
            words.append(f"[{key.item}]")
        if not words:
            say(neutral(line))
            return
        label = padded(" ".join(words), self._width)
        bar = in_color("failed", "|") if key.stream == "stderr" else dim("|")
        say(f"{dim(label)} {bar} {neutral(line)}")


def show_json(run: RunSnapshot) -> Callable[[LogKey, str], None]:
    names = {step.index: step.name for step in run.steps}

    def show(key: LogKey, line: str) -> None:
        facts = {
            "step": names.get(key.step),
            "step_index": key.step,
            "host": key.host,
            "item": key.item,
            "attempt": key.attempt,
            "stream": key.stream,
            "line": line,
        }
        say(as_json(facts))

    return show
