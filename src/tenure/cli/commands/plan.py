"""``tenure plan``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from tenure.bootstrap import default_actions, default_transport
from tenure.cli.display import json_lines
from tenure.cli.display.text import bold, counted, dim, in_color, neutral, note, one_line, say
from tenure.cli.options import completes, json_option, secrets_option, verb, workflow_options
from tenure.cli.secrets import check_declared, gather, names_of
from tenure.cli.variables import check_files, check_limit, check_var_names, variables
from tenure.model.errors import ExpressionError, HostUnreachable
from tenure.model.status import HostStatus
from tenure.ports.execution import Endpoint, Task, Transport
from tenure.runtime.executor import keep_out_of_sight
from tenure.runtime.masking import MASK, Masks
from tenure.runtime.prepare import secret_values
from tenure.runtime.recipe import Prepared, Recipe, prepare
from tenure.runtime.steps import item_unwanted, open_step
from tenure.workflow.arguments import evaluated_in, evaluated_in_loop
from tenure.workflow.plan import Exports, PlannedStep, make_plan
from tenure.workflow.spec import Step
from tenure.workflow.undefined import Sources, check_supplied
from tenure.workflow.wording import listed
from tenure.workflow_file import load_workflow

# What a workflow would do on each host, found out without changing anything. Expressions are
# evaluated with the values known before the first step. What depends on exports of earlier steps is
# reported as not known yet; what no earlier step can export is reported as missing.


_MAX_PARALLEL_CHECKS = 20
_CHECK_TIMEOUT_S = 30.0


class Decision(StrEnum):
    RUN = "run"
    SKIP = "skip"
    LATER = "later"
    """It depends on exports of earlier steps."""
    UNREACHABLE = "unreachable"
    FAIL = "fail"


class TaskPreview(Struct, frozen=True, kw_only=True):
    """One host and loop item."""

    host: str
    address: str
    decision: Decision
    item: Any = None
    changed: bool | None = None
    """``None``: cannot be known in advance."""
    summary: str = ""
    diff: str | None = None


class RollingPreview(Struct, frozen=True, kw_only=True):
    """Always numbers of hosts, even if the file has percentages."""

    batch: int
    max_failures: int
    max_unreachable: int | None
    """``None``: an unreachable host counts as a failed one."""


class StepPreview(Struct, frozen=True, kw_only=True):
    index: int
    name: str
    action: str
    needs: tuple[str, ...]
    when: str | None
    loops: bool
    rolling: RollingPreview | None = None
    tasks: tuple[TaskPreview, ...]
    become: str | None = None


class Preview(Struct, frozen=True, kw_only=True):
    workflow: str
    steps: tuple[StepPreview, ...]
    handlers: tuple[str, ...]
    approval: bool


async def preview(
    prepared: Prepared,
    variables: Mapping[str, Any],
    transport: Transport,
    folder: str | None,
    masks: Masks = Masks(()),
    files: Mapping[str, bytes] = {},
) -> Preview:
    """The plan, with all secrets known to ``masks`` masked."""
    plan = prepared.plan
    exports = Exports(plan, variables)
    secrets = set(plan.workflow.secrets).difference(variables)
    catalogue = {recipe.action.spec.name: recipe.action.spec for recipe in prepared.recipes}
    sources = Sources(plan.workflow, catalogue)
    looking = _Checker(prepared, exports, transport, folder, secrets, sources, masks, files)
    steps = []
    for planned, recipe in zip(plan.steps, prepared.recipes, strict=True):
        tasks = await asyncio.gather(*looking.at(planned, recipe))
        steps.append(
            StepPreview(
                index=planned.index,
                name=planned.step.name,
                action=planned.step.action,
                needs=tuple(plan.steps[index].step.name for index in planned.needs),
                become=planned.step.become,
                when=planned.step.when,
                loops=planned.step.loop is not None,
                rolling=_rolling(planned),
                tasks=tuple(_masked(each, masks) for each in tasks) if masks else tuple(tasks),
            )
        )
    return Preview(
        workflow=plan.workflow.name,
        steps=tuple(steps),
        handlers=tuple(plan.handlers),
        approval=plan.workflow.plan.mode == "manual-approve",
    )


def _rolling(planned: PlannedStep) -> RollingPreview | None:
    rolling, hosts = planned.step.rolling, len(planned.hosts)
    if rolling is None:
        return None
    return RollingPreview(
        batch=rolling.batch_size(hosts),
        max_failures=rolling.failure_budget(hosts),
        max_unreachable=rolling.unreachable_budget(hosts),
    )


def _depends_on(secrets: list[str]) -> str:
    return f"depends on a secret: {listed(secrets, 5)}; give it with --secret to see more"


def _masked(task: TaskPreview, masks: Masks) -> TaskPreview:
    return replace(
        task,
        item=MASK if masks.is_in(task.item) else task.item,
        summary=masks.text(task.summary),
        diff=task.diff and masks.text(task.diff),
    )


def _names_in(step: Step, recipe: Recipe) -> set[str]:
    """Variables that its expressions need."""
    inside = [
        *evaluated_in_loop(step.loop or ()),
        *evaluated_in(step.args, recipe.action.spec),
    ]
    names = {name for _, _, part in inside for name in part.expression.names}
    return names.union(step.must_vars, () if recipe.when is None else recipe.when.names)


async def _known(task: TaskPreview) -> TaskPreview:
    """A preview that needs no check on the host."""
    return task


class _Checker:
    def __init__(
        self,
        prepared: Prepared,
        exports: Exports,
        transport: Transport,
        folder: str | None,
        secrets: AbstractSet[str],
        sources: Sources,
        masks: Masks,
        files: Mapping[str, bytes],
    ) -> None:
        """``secrets`` are variables that only the run will be given; ``masks`` know the others."""
        self._masks = masks
        self._files = files
        self._hosts = prepared.plan.hosts
        self._secrets = secrets
        self._sources = sources
        self._exports = exports
        self._transport = transport
        self._folder = folder
        self._turns = asyncio.Semaphore(_MAX_PARALLEL_CHECKS)

    def at(self, planned: PlannedStep, recipe: Recipe) -> Iterator[Awaitable[TaskPreview]]:
        """The step's tasks, to be checked concurrently."""
        index, hosts = planned.index, planned.hosts
        secrets = sorted(self._secrets & _names_in(planned.step, recipe)) if self._secrets else []
        if secrets:
            said = _depends_on(secrets)
            yield from (_known(self._preview_of(host, Decision.LATER, said)) for host in hosts)
            return
        opening = open_step(recipe, hosts, self._exports.scope)
        for host in hosts:
            if opening.trouble is not None:
                yield _known(self._missing(index, host, opening.trouble.message))
            elif host in opening.unrunnable:
                yield _known(self._missing(index, host, opening.unrunnable[host].message or ""))
            elif host not in opening.hosts:
                yield _known(self._preview_of(host, Decision.SKIP, "its condition does not hold"))
            elif opening.items is None:
                yield self._check(index, host, recipe, self._exports.scope(host))
            elif not opening.items[host]:
                yield _known(self._preview_of(host, Decision.SKIP, "the loop has no items"))
            else:
                for number, item in enumerate(opening.items[host]):
                    scope = self._exports.scope(host, item)
                    yield self._check(index, host, recipe, scope, number, item)

    def _preview_of(
        self, host: str, decision: Decision, summary: str, item: Any = None
    ) -> TaskPreview:
        address = self._hosts[host].address
        return TaskPreview(
            host=host, address=address, decision=decision, summary=summary, item=item
        )

    def _missing(
        self, index: int, host: str, said: str, name: str | None = None, item: Any = None
    ) -> TaskPreview:
        """It would fail with the values known now, for lack of the variable ``name`` if given. It
        will fail in the run too, unless an earlier step exports that."""
        may_gain = self._sources.in_step(index).may_gain(name)
        return self._preview_of(host, Decision.LATER if may_gain else Decision.FAIL, said, item)

    async def _check(
        self,
        index: int,
        host: str,
        recipe: Recipe,
        scope: Mapping[str, Any],
        number: int | None = None,
        item: Any = None,
    ) -> TaskPreview:
        if number is not None:
            unwanted = item_unwanted(recipe, scope)
            if unwanted is not None and unwanted.status is HostStatus.FAILED:
                return self._missing(index, host, unwanted.message or "", item=item)
            if unwanted is not None:
                return self._preview_of(host, Decision.SKIP, unwanted.message or "", item)
        try:
            task = self._task(index, host, recipe, scope, number)
            keep_out_of_sight(task, recipe.args.in_sight, self._masks)
            async with self._turns, asyncio.timeout(recipe.timeout or _CHECK_TIMEOUT_S):
                found = await recipe.action.check(task, self._transport)
        except ExpressionError as error:
            name = error.undefined
            if name is not None and name in self._secrets:  # named only in a template's text
                return self._preview_of(host, Decision.LATER, _depends_on([name]), item)
            return self._missing(index, host, str(error), name, item)
        except HostUnreachable as error:
            return self._preview_of(host, Decision.UNREACHABLE, str(error), item)
        except TimeoutError:
            return self._preview_of(host, Decision.FAIL, "gave no answer in time", item)
        except Exception as error:  # noqa: BLE001  (apply would raise it too)
            return self._preview_of(host, Decision.FAIL, str(error) or repr(error), item)
        return TaskPreview(
            host=host,
            address=task.host.address,
            decision=Decision.RUN,
            item=item,
            changed=found.changed,
            summary=found.summary,
            diff=found.diff,
        )

    def _task(
        self, index: int, host: str, recipe: Recipe, scope: Mapping[str, Any], number: int | None
    ) -> Task:
        rendered = recipe.args.render(scope)
        return Task(
            task_id=f"plan:{index}:{host}",
            run_id="plan",
            step=recipe.name,
            step_index=index,
            host=Endpoint(name=host, address=self._hosts[host].address),
            action=recipe.action.spec.name,
            args=rendered.args,
            env=rendered.env,
            vars=scope,
            item=number,
            folder=self._folder or ".",
            files=self._files,
            become=recipe.become,
            masks=self._masks,
        )


# The plan as text: hosts that would do the same share a line.


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
_MAX_NAMES = 5


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
        facts.append(_rolling_line(step.rolling))
    yield f"  {bold(one_line(step.name))}  {dim(' · '.join(facts))}"
    if not step.tasks:
        yield f"    {dim('no host is left for it')}"
    for tasks in _alike(step.tasks):
        yield from _tasks(tasks)


def _rolling_line(rolling: RollingPreview) -> str:
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
    names = listed(hosts, _MAX_NAMES)
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


@verb(
    "plan",
    "tenure plan deploy.yaml --var release=1.4",
    "tenure plan deploy.yaml --limit web1 --json",
    "tenure plan deploy.yaml --secret db_password",
)
@click.argument("workflow", metavar="FILE", shell_complete=completes("workflow_files"))
@workflow_options
@secrets_option
@json_option
def command(
    workflow: str,
    given: tuple[str, ...],
    vars_files: tuple[str, ...],
    secrets: tuple[str, ...],
    limit: tuple[str, ...],
    local: bool,
    as_json: bool,
) -> None:
    """Show what would run where, changing nothing.

    Every action is asked what it would do on each host; changes of files are shown as a
    difference, secrets masked. What depends on secrets that --secret does not give, or on variables
    that earlier steps export, is reported as not known yet.
    """
    known = variables(vars_files, given)
    names = known.keys() | names_of(secrets)
    file = load_workflow(workflow)
    for text in file.notices:
        note(f"notice: {text}")
    check_declared(names_of(secrets), file.workflow.secrets)
    check_var_names(file, given)
    check_limit(file.workflow, limit)
    files = check_files(file, known, limit=limit, local=local)
    plan = make_plan(file.workflow, limit=limit, local=local)
    check_supplied(file.wanted, plan, names)
    prepared = prepare(plan, default_actions())
    # Only the given secrets: a plan need not have all that the run needs.
    known |= gather(secrets, sorted(names_of(secrets)))
    found = asyncio.run(_preview(prepared, known, file.folder, files))
    if as_json:
        say(json_lines.as_json(found))
        return
    for line in preview_lines(found):
        say(line)


async def _preview(
    prepared: Prepared, given: dict[str, Any], folder: str | None, files: Mapping[str, bytes]
) -> Preview:
    transport = default_transport()
    masks = Masks(_in_differences(secret_values(given, prepared.plan.workflow, ())))
    try:
        return await preview(prepared, given, transport, folder, masks, files)
    finally:
        await transport.close()


def _in_differences(secrets: Iterable[Any]) -> Iterator[str]:
    """In a difference each line of a secret follows a sign, so also lines too short to be masked
    elsewhere."""
    for secret in map(str, secrets):
        yield secret
        for sign in "+- " if "\n" in secret else "":
            yield secret.strip().replace("\n", f"\n{sign}")
