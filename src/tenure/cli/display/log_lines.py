"""Output of tasks on a screen: each line with whose it is, if there are several."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import msgspec

from tenure.cli.display.output_lines import behind, lines_as_kept
from tenure.cli.display.paint import dim, fitting, in_color
from tenure.cli.display.text import cells, one_line, padded
from tenure.model.snapshot import RunSnapshot
from tenure.ports.log_store import LogKey

LONGEST_LINE = 1 << 20
_WIDEST = 32

Show = Callable[[LogKey, bytes], None]
"""Takes whole lines, without the last one's end."""


def text_lines(run: RunSnapshot, *, steps: bool, hosts: bool) -> Show:
    """``web1 | line``; the step's name too if there are several steps."""
    names = {step.index: one_line(step.name) for step in run.steps} if steps else {}
    shown_hosts = {one_line(name) for each in run.steps for name in each.hosts} if hosts else set()
    widths = [max(map(cells, words)) for words in (names.values(), shown_hosts) if words]
    width = min(sum(widths) + len(widths) - 1, _WIDEST)

    @cache
    def label(key: LogKey) -> str:
        words = [names.get(key.step, str(key.step))] if steps else []
        if hosts:
            words.append(one_line(key.host))
        if key.item is not None:
            words.append(f"[{key.item}]")
        if not words:
            return ""
        bar = in_color("failed", "|") if key.stream == "stderr" else dim("|")
        return fitting(f"{dim(padded(' '.join(words), width))} {bar} ", sys.stdout)

    def show(key: LogKey, lines: bytes) -> None:
        sys.stdout.write(f"{behind(label(key), lines_as_kept(lines))}\n")

    return show


def json_lines(run: RunSnapshot) -> Show:
    names = {step.index: step.name for step in run.steps}

    @cache
    def head(key: LogKey) -> str:
        facts = {
            "step": names.get(key.step),
            "step_index": key.step,
            "host": key.host,
            "item": key.item,
            "attempt": key.attempt,
            "stream": key.stream,
        }
        return f'{msgspec.json.encode(facts).decode()[:-1]},"line":'

    def show(key: LogKey, lines: bytes) -> None:
        start = head(key)
        texts = lines.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
        sys.stdout.write("".join(f"{start}{_quoted(text)}}}\n" for text in texts.split("\n")))

    return show


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
