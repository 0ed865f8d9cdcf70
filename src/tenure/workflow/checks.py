"""Whether the parts of a workflow fit together: names that must exist, texts that must compile.

Each check reads the workflow and reports; none stops at the first mistake or needs another to have
passed. Single values were checked when they were read (``schema``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from tenure.model.errors import ExpressionError
from tenure.workflow.arguments import ENV, PROBE, misfits, text_problems
from tenure.workflow.callbacks import faults_of
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.expressions import compile_condition
from tenure.workflow.inventory import roster_of
from tenure.workflow.placeholders import Embedded, split_template
from tenure.workflow.plan import find_cycle
from tenure.workflow.schema import MOST_HOSTS
from tenure.workflow.spec import Handler, OnTakeover, Step, Workflow
from tenure.workflow.wording import instead_of
from tenure.workflow.yaml import Path

MOST_TASKS = 1_000_000
"""Hosts over all steps, which the run's record would have to hold."""
LONGEST_NAME = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_YES_OR_NO = frozenset({"true", "false", "yes", "no", "on", "off"})
"""Values for ``become`` in other tools."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?", re.ASCII)
_ENV_NAME = re.compile(r"[^=\x00]+")
_SCHEMES = ("ssh://", "http://", "https://")


class Report(Protocol):
    def __call__(
        self,
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        offset: int | None = None,
        key: bool = False,
    ) -> None:
        """``offset`` is the place in the text at ``path``; ``key``: its name is the mistake."""
        ...


Check = Callable[[Workflow, Catalogue, Report], None]


def check_names(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    _check_name(workflow.name, ("name",), report)
    _check_name(workflow.queue, ("queue",), report)
    for kind, works in (("steps", workflow.steps), ("handlers", workflow.handlers)):
        first: dict[str, int] = {}
        for index, work in enumerate(works):
            path: Path = (kind, index, "name")
            _check_name(work.name, path, report)
            if work.name in first:
                report(path, f"{work.name!r} is taken", f"{kind}[{first[work.name]}] has it")
            first.setdefault(work.name, index)


def _check_name(name: str, path: Path, report: Report, *, key: bool = False) -> None:
    if not name.strip():
        report(path, "must not be empty", key=key)
    elif _CONTROL.search(name):
        report(path, "must be one line without control characters", key=key)
    elif len(name) > LONGEST_NAME:
        report(path, f"is longer than {LONGEST_NAME} characters", key=key)


def check_hosts(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    inventory = workflow.inventory
    for name, host in inventory.hosts.items():
        path: Path = ("inventory", "hosts", name)
        _check_host_name(name, path, report, key=True)
        if host.address is not None and not _is_address(host.address):
            report(
                (*path, "address"),
                f"{host.address[:60]!r} is no address",
                "write local, ssh://user@host:port or http://host:port",
            )
    for name, group in inventory.groups.items():
        path = ("inventory", "groups", name)
        _check_name(name, path, report, key=True)
        for index, member in enumerate(group.hosts):
            inside = (*path, "hosts", index)
            _check_host_name(member, inside, report)
            if member in inventory.groups and member not in inventory.hosts:
                report(inside, f"{member!r} is a group", "a group lists hosts")
    if len(roster_of(inventory).hosts) > MOST_HOSTS:
        report(("inventory",), f"more than {MOST_HOSTS} hosts")


def _check_host_name(name: str, path: Path, report: Report, *, key: bool = False) -> None:
    """A host without an address is reached by its name, which ssh must not take for an option."""
    _check_name(name, path, report, key=key)
    if name.startswith("-"):
        report(path, "must not begin with '-'", key=key)


def _is_address(address: str) -> bool:
    place = address.strip()
    if not place or _CONTROL.search(place) or re.search(r"\s", place):
        return False
    scheme, slashes, rest = place.partition("://")
    if slashes and f"{scheme}://" not in _SCHEMES:
        return False
    user_and_host = (rest if slashes else place).partition("/")[0]
    user, _, host = user_and_host.rpartition("@")
    return bool(host) and not host.startswith("-") and not user.startswith("-")


def check_targets(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    roster = roster_of(workflow.inventory)
    sizes: dict[tuple[str, ...], int] = {}
    tasks = 0
    for index, step in enumerate(workflow.steps):
        for place, name in enumerate(step.targets):
            if not roster.knows(name):
                path: Path = ("steps", index, "targets", place)
                hint = instead_of(name, roster.names)
                report(path, f"no host or group named {name!r}", hint)
        targets = tuple(name for name in step.targets if roster.knows(name))
        if targets not in sizes:
            sizes[targets] = len(roster.choose(targets))
        tasks += sizes[targets]
        if tasks > MOST_TASKS:
            report(("steps",), f"more than {MOST_TASKS} hosts over all steps")
            return


def check_order(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    index_of = {step.name: index for index, step in enumerate(workflow.steps)}
    needs: list[tuple[int, ...]] = []
    for index, step in enumerate(workflow.steps):
        if step.needs is None:
            needs.append((index - 1,) if index else ())
            continue
        for place, name in enumerate(step.needs):
            path: Path = ("steps", index, "needs", place)
            if name == step.name:
                report(path, "a step cannot need itself")
            elif name not in index_of:
                report(path, f"no step named {name!r}", instead_of(name, index_of))
        others = {index_of[name] for name in step.needs if name in index_of}
        needs.append(tuple(sorted(others - {index})))
    cycle = find_cycle(needs)
    if cycle is not None:
        shown = " needs ".join(workflow.steps[index].name for index in cycle)
        report(
            ("steps", cycle[0]),
            f"these steps wait for one another: {shown}",
            "a step without 'needs' follows the one above it; write needs: [] to start at once",
        )


def check_notifications(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    known = [handler.name for handler in workflow.handlers]
    for index, step in enumerate(workflow.steps):
        for place, name in enumerate(step.notify):
            if name not in known:
                hint = instead_of(name, known) if known else "there are no handlers"
                report(("steps", index, "notify", place), f"no handler named {name!r}", hint)


def check_actions(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    for path, work in works_of(workflow):
        spec = catalogue.get(work.action)
        if spec is None:
            hint = instead_of(work.action, catalogue, 30)
            report((*path, "action"), f"no action named {work.action!r}", hint)
            continue
        for misfit in misfits(work.args, spec):
            inside = (*path, "args", misfit.name) if misfit.name else (*path, "args")
            key = misfit.unknown or misfit.name is None
            report(inside, misfit.message, misfit.hint, key=key)
        for inner, error in text_problems(work.args, spec):
            report((*path, "args", *inner), error.message, error.hint, offset=error.offset)
        given = work.args.get(ENV)
        if spec.environment and isinstance(given, dict):
            for name in given:
                if not _ENV_NAME.fullmatch(name):
                    message = f"{name!r} is no name for the environment"
                    report((*path, "args", ENV, name), message, key=True)


def check_expressions(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    for path, work in works_of(workflow):
        if work.when is not None:
            try:
                compile_condition(work.when)
            except ExpressionError as error:
                report((*path, "when"), error.message, error.hint, offset=error.offset)
        if isinstance(work, Step):
            _check_loop(work, path, report)


def _check_loop(step: Step, path: Path, report: Report) -> None:
    inside = (*path, "loop")
    if isinstance(step.loop, str):
        try:
            parts = split_template(step.loop.strip())
        except ExpressionError as error:
            report(inside, error.message, error.hint, offset=error.offset)
            return
        if len(parts) != 1 or not isinstance(parts[0], Embedded):
            report(inside, "must be a list or one ${{ expression }} that gives one")
    elif step.loop:
        for inner, problem in text_problems({"loop": list(step.loop)}, PROBE):
            report((*inside, *inner[1:]), problem.message, problem.hint, offset=problem.offset)


def check_takeover(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    for index, step in enumerate(workflow.steps):
        path: Path = ("steps", index)
        if step.on_takeover is OnTakeover.VERIFY and step.verify is None:
            report((*path, "on_takeover"), "verify needs a probe", "add verify: {cmd: …}")
        if step.verify is not None:
            for inner, error in text_problems({"cmd": step.verify.cmd}, PROBE):
                report((*path, "verify", *inner), error.message, error.hint, offset=error.offset)


def check_users(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    for path, work in works_of(workflow):
        if work.become is None:
            continue
        spec = catalogue.get(work.action)
        if not _USER.fullmatch(work.become):
            report((*path, "become"), f"{work.become[:60]!r} is no name of a user")
        elif work.become.lower() in _YES_OR_NO:
            hint = "name the user, as in become: root, or leave it out"
            report((*path, "become"), f"{work.become!r} is no name of a user", hint)
        elif spec is not None and spec.in_process:
            message = f"{spec.name} starts no process that could run as another user"
            report((*path, "become"), message, "leave it out", key=True)


def check_variables(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    secrets = set(workflow.secrets)
    for path, names in variables_in(workflow):
        for name in names:
            _check_name(name, (*path, name), report, key=True)
            if name in secrets:
                report(
                    (*path, name),
                    f"{name!r} is a secret and must not be in the file",
                    "give it with --secret, the environment or a file",
                    key=True,
                )
    for place, name in enumerate(workflow.secrets):
        _check_name(name, ("secrets", place), report)
    for index, step in enumerate(workflow.steps):
        for place, name in enumerate(step.must_vars):
            _check_name(name, ("steps", index, "must_vars", place), report)
        for place, name in enumerate(step.expect_vars):
            _check_name(name, ("steps", index, "expect_vars", place), report)


def variables_in(workflow: Workflow) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every place of the file that sets variables."""
    inventory = workflow.inventory
    yield ("vars",), workflow.vars
    yield ("inventory", "vars"), inventory.vars
    for name, host in inventory.hosts.items():
        yield ("inventory", "hosts", name, "vars"), host.vars
    for name, group in inventory.groups.items():
        yield ("inventory", "groups", name, "vars"), group.vars


def check_callbacks(workflow: Workflow, catalogue: Catalogue, report: Report) -> None:
    for index, callback in enumerate(workflow.callbacks):
        path: Path = ("callbacks", index)
        for fault in faults_of(callback.url, callback.headers, callback.secret_env):
            report((*path, *fault.path), fault.message, fault.hint)


def is_web_address(url: str) -> bool:
    if _CONTROL.search(url) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def works_of(workflow: Workflow) -> Iterator[tuple[Path, Step | Handler]]:
    """Every step and handler, with its path."""
    for index, step in enumerate(workflow.steps):
        yield ("steps", index), step
    for index, handler in enumerate(workflow.handlers):
        yield ("handlers", index), handler


CHECKS: tuple[Check, ...] = (
    check_names,
    check_hosts,
    check_targets,
    check_order,
    check_notifications,
    check_actions,
    check_expressions,
    check_takeover,
    check_users,
    check_variables,
    check_callbacks,
)
