"""A preview for reading: hosts that would do the same share a line."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.cli.display.paint import bold, dim, in_color
from tenure.cli.display.text import counted, neutral, one_line
from tenure.cli.preview import Decision, Preview, RollingPreview, StepPreview, TaskPreview
from tenure.workflow.wording import listed

_COLORS = {
    Decision.RUN: "success",
    Decision.SKIP: "skipped",
    Decision.LATER: "queued",
    Decision.UNREACHABLE: "unreachable",
    Decision.FAIL: "failed",
}
_WORDS = {
    Decision.RUN: "runs",
    Decision.SKIP: "skipped",
    Decision.LATER: "not known yet",
    Decision.UNREACHABLE: "unreachable",
    Decision.FAIL: "would fail",
}
_MOST_NAMES = 5


def preview_lines(preview: Preview) -> Iterator[str]:
    hosts = {task.host for step in preview.steps for task in step.tasks}
    summary = f"{counted(len(preview.steps), 'step')}, {counted(len(hosts), 'host')}"
    yield f"{bold(one_line(preview.workflow))}  {dim(summary)}"
    if preview.approval:
        yield f"  {in_color('queued', 'waits for approval')}: tenure approve, or run --approve"
    for step in preview.steps:
        yield ""
        yield from _step(step)
    if preview.handlers:
        yield ""
        yield dim(f"  handlers, if notified: {listed(map(one_line, preview.handlers))}")


def _step(step: StepPreview) -> Iterator[str]:
    facts = [step.action]
    if step.become is not None:
        facts.append(f"as {one_line(step.become)}")
    if step.needs != () and step.index:
        facts.append(f"after {listed(map(one_line, step.needs), 3)}")
    if step.when is not None:
        facts.append(f"when {one_line(step.when)}")
    if step.loops:
        facts.append("in a loop")
    if step.rolling is not None:
        facts.append(_rolling(step.rolling))
    yield f"  {bold(one_line(step.name))}  {dim(' · '.join(facts))}"
    if not step.tasks:
        yield f"    {dim('no host is left for it')}"
    for tasks in _alike(step.tasks):
        yield from _tasks(tasks)


def _rolling(rolling: RollingPreview) -> str:
    most = f"{rolling.max_failures} may fail"
    if rolling.max_unreachable is not None:
        most += f", {rolling.max_unreachable} be unreachable"
    return f"in batches of {rolling.batch}, {most}"


def _alike(tasks: tuple[TaskPreview, ...]) -> list[list[TaskPreview]]:
    groups: dict[tuple[object, ...], list[TaskPreview]] = {}
    for task in tasks:
        key = (task.decision, task.changed, task.summary, task.diff)
        groups.setdefault(key, []).append(task)
    return list(groups.values())


def _tasks(tasks: list[TaskPreview]) -> Iterator[str]:
    first = tasks[0]
    hosts = list(dict.fromkeys(one_line(task.host) for task in tasks))
    word = _WORDS[first.decision]
    if first.changed is not None:
        word = "would change" if first.changed else "nothing to change"
    names = listed(hosts, _MOST_NAMES)
    items = f" ({counted(len(tasks), 'item')})" if len(tasks) > len(hosts) else ""
    yield f"    {in_color(_COLORS[first.decision], word)}  {names}{items}"
    if first.summary:
        yield f"      {dim(one_line(first.summary))}"
    for line in (first.diff or "").splitlines():
        yield f"      {_diff(line)}"


def _diff(line: str) -> str:
    if line.startswith("+"):
        return in_color("success", line)
    return in_color("failed", line) if line.startswith("-") else neutral(line)
