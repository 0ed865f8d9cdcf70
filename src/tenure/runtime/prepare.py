"""Preparing runs: compiled workflows, reused between runs (``ReadyWorkflows``), the record of a new
run (``planned_run``), the files that travel with it, and checks that it has all variables and
secrets and records no secret.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from errno import EINVAL, ENOENT
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tenure.model.errors import ExpressionError, InvalidOptions, InvalidWorkflow, Mistake, Wanted
from tenure.model.ids import check_run_id
from tenure.model.snapshot import Approval, CallbackTarget, RunSnapshot
from tenure.model.status import Recovery, RunStatus
from tenure.ports.execution import Action
from tenure.runtime.masking import SHORTEST_TELLING, Masks, is_too_short
from tenure.runtime.options import RunOptions
from tenure.runtime.recipe import Definition, Prepared, prepare
from tenure.workflow.arguments import CompiledArgs, CompiledLoop, compile_args, compile_loop
from tenure.workflow.catalogue import ActionSpec, Argument, Catalogue
from tenure.workflow.parse import Parsed, check_workflow, in_order, parse_workflow, placed
from tenure.workflow.plan import NO_ITEM, Exports, Plan, make_plan
from tenure.workflow.spec import CallbackSpec, Handler, PlanMode, Step, Workflow
from tenure.workflow.undefined import not_supplied
from tenure.workflow.wording import called

# Files that travel with a run are read when it is created and kept in its definition, so that a
# takeover or a retry has them as they were. A missing file is a mistake, found before the first
# step, unless an earlier step names it too and so may make it. A name that depends on an export or
# a secret is known only while the run lasts: a run that is executed at once reads such files from
# the workflow's folder; one that waits for a worker is refused.

MAX_FILES = 10_000
MAX_FILES_BYTES = 32 * 1024 * 1024
"""Of all files of a run together."""

_VARIABLE = "${"
_LARGE = "let the hosts fetch what is large (curl, rsync) with cmd.run"


class FileArgument(Struct, frozen=True, kw_only=True):
    """An argument that names a file, in a step or handler."""

    path: str
    """Its place in the workflow, for mistakes."""
    argument: Argument
    text: str
    hosts: tuple[str, ...]
    compiled: CompiledArgs
    loop: CompiledLoop | None = None
    before: Sequence[Mapping[str, Any]] = ()
    """The arguments of the steps before."""

    def may_be_made(self, name: str) -> bool:
        return any(Path(name).name in str(args) for args in self.before)

    def names(self, exports: Exports) -> Iterator[str | None]:
        """The file names it renders to; ``None`` for one that is not known yet."""
        if _VARIABLE not in self.text:
            yield self.text
            return
        for host in self.hosts:
            try:
                for item in self._items(exports.scope(host)):
                    rendered = self.compiled.render(exports.scope(host, item))
                    name = str(rendered.args[self.argument.name])
                    yield None if _VARIABLE in name else name
            except ExpressionError:
                yield None

    def _items(self, scope: Mapping[str, Any]) -> list[Any]:
        if self.loop is None or "item" not in self.text:
            return [NO_ITEM]
        return self.loop.items(scope)


def file_arguments(plan: Plan, catalogue: Catalogue) -> tuple[FileArgument, ...]:
    """All file arguments of a plan."""
    found: list[FileArgument] = []
    args = [step.step.args for step in plan.steps]
    for place, step in enumerate(plan.steps):
        found += _of(step.step, f"steps[{step.index}]", step.hosts, catalogue, args, place)
    for place, handler in enumerate(plan.handlers.values()):
        found += _of(handler, f"handlers[{place}]", tuple(plan.hosts), catalogue, args, len(args))
    return tuple(found)


def _of(
    what: Step | Handler,
    path: str,
    hosts: tuple[str, ...],
    catalogue: Catalogue,
    args: Sequence[Mapping[str, Any]],
    place: int,
) -> Iterator[FileArgument]:
    for argument in catalogue[what.action].arguments:
        text = what.args.get(argument.name)
        if argument.file_bytes is None or not isinstance(text, str) or not hosts:
            continue
        loop = what.loop if isinstance(what, Step) else None
        alone = ActionSpec(name=what.action, arguments=(argument,))
        yield FileArgument(
            path=f"{path}.args.{argument.name}",
            argument=argument,
            text=text,
            hosts=hosts,
            compiled=compile_args({argument.name: text}, alone),
            loop=None if loop is None else compile_loop(loop),
            before=args[:place],
        )


class FilePlace(NamedTuple):
    """The folder of the workflow and its name in mistakes. ``files``, if given, replaces the
    folder."""

    folder: str
    source: str
    files: Mapping[str, bytes] | None = None


class Gathered(NamedTuple):
    files: dict[str, bytes]
    notices: tuple[str, ...]
    """Which of them are not where files of a workflow belong."""


def gather_files(
    wanted: tuple[FileArgument, ...], exports: Exports, place: FilePlace, *, strict: bool
) -> Gathered:
    """The files by the names the arguments give them; blocking. ``InvalidWorkflow`` for files that
    are missing, too large or too many, and if ``strict`` for names that are not known yet."""
    gathering = _Gathering(place, strict)
    for each in wanted:
        for name in each.names(exports):
            gathering.take(each, name)
    if gathering.mistakes:
        raise InvalidWorkflow(gathering.mistakes)
    return Gathered(gathering.found, tuple(gathering.notices))


def files_of(
    file: Source,
    plan: Plan,
    catalogue: Catalogue,
    given: Mapping[str, Any],
    *,
    strict: bool = False,
) -> Gathered:
    """Those of a workflow that is about to be run with these variables; blocking. As
    ``gather_files``."""
    known = {name: value for name, value in given.items() if name not in file.workflow.secrets}
    place = FilePlace(file.folder or ".", file.source or "workflow")
    wanted = file_arguments(plan, catalogue)
    return gather_files(wanted, Exports(plan, known), place, strict=strict)


class _Gathering:
    def __init__(self, place: FilePlace, strict: bool) -> None:
        self._folder, self._source, self._given = place
        self._strict = strict
        self._bytes = 0
        self._seen: set[str] = set()
        self.found: dict[str, bytes] = {}
        self.notices: list[str] = []
        self.mistakes: dict[Mistake, None] = {}

    def take(self, by: FileArgument, name: str | None) -> None:
        if name is None:
            if self._strict:
                said = f"{by.text!r} is a name that is known only while the run lasts"
                self._mistake(by, f"{said}: such a file cannot travel with a run that waits")
        elif name not in self._seen:
            self._seen.add(name)
            self._read(by, name, by.argument.file_bytes or 0)

    def _read(self, by: FileArgument, name: str, most: int) -> None:
        try:
            data = self._content(by, name, most + 1)
        except (OSError, ValueError) as error:
            if by.may_be_made(name) and not self._strict:
                return
            reason = getattr(error, "strerror", None) or error
            self._mistake(by, f"{name} cannot be read: {reason}")
            return
        if len(data) > most:
            self._mistake(by, f"{name} is longer than {most} bytes", _LARGE)
            return
        self._bytes += len(data)
        self.found[name] = data
        if len(self.found) > MAX_FILES or self._bytes > MAX_FILES_BYTES:
            limits = f"{MAX_FILES:,} files or {MAX_FILES_BYTES // 1024**2} MiB"
            self._mistake(by, f"more than {limits} would travel with the run", _LARGE)
            raise InvalidWorkflow(self.mistakes)

    def _content(self, by: FileArgument, name: str, most: int) -> bytes:
        """``OSError``, ``ValueError``."""
        if self._given is None:
            path = Path(self._folder, name)
            if not path.exists() and Path(name).exists():  # where older runners looked
                here = Path.cwd()
                self.notices.append(
                    f"{by.path}: {name} is not beside the workflow; the one in the working "
                    f"directory, {here}, is used"
                )
                path = here / name
            return _content(path, most)
        if name not in self._given:
            raise OSError(ENOENT, "it is not among the files that came with the workflow")
        return self._given[name]

    def _mistake(self, by: FileArgument, message: str, hint: str | None = None) -> None:
        mistake = Mistake(source=self._source, path=by.path, message=message, hint=hint)
        self.mistakes[mistake] = None


def _content(path: Path, most: int) -> bytes:
    """The content of a regular file; others may be readable only once. Raises ``OSError`` or
    ``ValueError``."""
    if path.exists() and not path.is_file():
        raise OSError(EINVAL, "it is no regular file")
    with path.open("rb") as file:
        return file.read(most)


_MAX_READY = 64
_TO_RUN = "give it with --secret {name} (secrets=… in Python)"
_TO_WORKER = (
    "runs carry no secrets: start every worker of the queue with tenure worker --secret {name}, or "
    "with {variable} in its environment (secrets=… in Python)"
)


class Source(Protocol):
    """A workflow, its text and its file."""

    @property
    def workflow(self) -> Workflow: ...
    @property
    def text(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def folder(self) -> str | None: ...


class Ready(Struct, frozen=True, kw_only=True):
    """A compiled workflow, with everything that its runs share."""

    given: object
    """Kept alive, since its ``id`` is the cache key."""
    source: Source
    prepared: Prepared
    definition: Definition
    encoded: str
    """The definition without files, which may differ between runs."""
    files: tuple[FileArgument, ...]
    wanted: tuple[Wanted, ...]
    template: RunSnapshot
    """The fields of a run that follow from the workflow: copying it costs a tenth of a new
    record."""


Given = TypeVar("Given")


class ReadyWorkflows(Generic[Given]):
    """Compiles workflows, and keeps the most recent ones (workflows are values)."""

    def __init__(
        self,
        source_of: Callable[[Given], Source],
        actions: Callable[[], Mapping[str, Action]],
    ) -> None:
        self._source_of = source_of
        self._actions = actions
        self._ready: OrderedDict[tuple[object, ...], Ready] = OrderedDict()

    def of(self, given: Given, options: RunOptions) -> Ready:
        """Raises ``InvalidOptions``, or ``InvalidWorkflow`` with all mistakes."""
        if not isinstance(options, RunOptions):
            raise InvalidOptions([f"options must be RunOptions, and is {called(options)}"])
        key = (id(given), tuple(options.limit), options.local)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._prepare_given(given, options)
            if len(self._ready) > _MAX_READY:
                self._ready.popitem(last=False)
        else:
            self._ready.move_to_end(key)
        return ready

    def stored(self, given: Given, definition: Definition) -> Ready:
        """Compile what a stored run executes."""
        return self._prepared(given, definition)

    def _prepare_given(self, given: Given, options: RunOptions) -> Ready:
        source = self._source_of(given)
        definition = Definition(
            workflow=source.text,
            source=source.source,
            folder=source.folder,
            limit=tuple(options.limit),
            local=options.local,
        )
        return self._prepared(given, definition)

    def _prepared(self, given: Given, definition: Definition) -> Ready:
        source, actions = self._source_of(given), self._actions()
        catalogue = {name: action.spec for name, action in actions.items()}
        parsed = _checked(source, catalogue)
        plan = make_plan(source.workflow, limit=definition.limit, local=definition.local)
        prepared = prepare(plan, actions, definition.continues)
        return Ready(
            given=given,
            source=source,
            prepared=prepared,
            definition=definition,
            encoded=definition.encode(),
            files=file_arguments(plan, catalogue),
            wanted=parsed.wanted,
            template=_template(source, prepared),
        )


def _template(source: Source, prepared: Prepared) -> RunSnapshot:
    workflow = source.workflow
    return RunSnapshot(
        run_id="",
        workflow_name=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=source.digest,
        queue=workflow.queue,
        priority=workflow.priority,
        timeout=workflow.timeout,
        labels=workflow.labels,
        steps=prepared.planned_steps,
    )


def check_secrets(file: Source, given: Collection[str]) -> None:
    """``InvalidWorkflow`` names each secret that is missing."""
    missing = _secrets_not_given(file, given)
    if missing:
        raise InvalidWorkflow(missing)


def check_complete(
    ready: Ready,
    variables: Collection[str],
    secrets: Collection[str],
    *,
    by_worker: bool = False,
) -> None:
    """``InvalidWorkflow`` names all variables and secrets that are missing. ``by_worker``: the
    message says to give secrets to the worker."""
    missing = _secrets_not_given(ready.source, secrets, by_worker=by_worker)
    if ready.wanted:
        missing += not_supplied(ready.wanted, ready.prepared.plan, {*variables, *secrets})
    if missing:
        raise InvalidWorkflow(in_order(missing))


def _secrets_not_given(
    file: Source, given: Collection[str], *, by_worker: bool = False
) -> list[Mistake]:
    if not file.workflow.secrets:
        return []
    to, advice = (" to the worker", _TO_WORKER) if by_worker else ("", _TO_RUN)
    missing = [
        (
            ("secrets", place),
            f"the secret {name!r} is not given{to}",
            advice.format(name=name, variable=f"TENURE_SECRET_{name.upper()}"),
        )
        for place, name in enumerate(file.workflow.secrets)
        if name not in given
    ]
    return list(placed(missing, file.source, file.text)) if missing else []


def _checked(source: Source, catalogue: Catalogue) -> Parsed:
    """Check the workflow. The text is parsed again only to locate mistakes in it."""
    try:
        parsed = check_workflow(source.workflow, catalogue)
    except InvalidWorkflow:
        if source.source is not None:
            parse_workflow(source.text, catalogue, source=source.source)
        raise
    if parsed.wanted and source.source is not None:
        return parse_workflow(source.text, catalogue, source=source.source)
    return parsed


Kept = tuple[str, str, Any, str]
"""Kind and name of an option, the part of it that is recorded, and the reason why the secret
``{name}`` must not be in it, with what to do instead."""
_VARIABLES = (
    "variables are kept with the run; if it is meant to be there, put it together in the step that "
    "uses it, with ${{{{ {name} }}}}"
)
_LABELS = "labels are kept with the run; if it is meant to be there, leave it out"
_CALLBACKS = (
    "where callbacks go is kept with the run; if it is meant to be there, let secret_env name what "
    "signs them"
)
_BY_CHANCE = "if it is there by chance, the secret is too easy to guess: use another one"
_LONGER = f", of {SHORTEST_TELLING} characters at least"


def check_secrets_kept_out(options: RunOptions, workflow: Workflow) -> None:
    """``InvalidOptions`` names each recorded option that has a secret's value in it, never the
    value. What the workflow file itself has is not checked. A client that queues a run for workers
    may not know its secrets; then there is nothing to look for."""
    by_name = {name: options.vars[name] for name in workflow.secrets if name in options.vars}
    secrets = {**by_name, **options.secrets}
    if not secrets:
        return
    masks = Masks(secrets.values())
    wrong = [
        f"{kind} {masks.text(name)}: {_problem(value, why, secrets)}"
        for kind, name, value, why in _kept(options, workflow, by_name)
        if masks.is_in(value)
    ]
    if wrong:
        raise InvalidOptions(wrong)


def _kept(options: RunOptions, workflow: Workflow, by_name: Mapping[str, Any]) -> Iterator[Kept]:
    """``by_name``: variables that are not recorded because they are named as secrets."""
    for name, value in options.vars.items():
        if name not in by_name:
            yield "variable", name, _new(name, value, workflow.vars), _VARIABLES
    for name, text in options.labels.items():
        yield "label", name, _new(name, text, workflow.labels), _LABELS
    for number, target in enumerate(options.callbacks, 1):
        yield f"callback {number}, its", "url", target.url, _CALLBACKS
        for name, text in target.headers.items():
            yield f"callback {number}, its", name, {name: text}, _CALLBACKS


def _new(name: str, value: Any, in_file: Mapping[str, Any]) -> Any:
    """The value, unless the workflow file has it too."""
    if name not in in_file:
        return {name: value}
    return None if value == in_file[name] else value


def _problem(value: Any, why: str, secrets: Mapping[str, Any]) -> str:
    name = next(
        (name for name in secrets if Masks([secrets[name]]).is_in(value)), next(iter(secrets))
    )
    longer = _LONGER if is_too_short(str(secrets[name])) else ""
    why = why.format(name=name)
    return f"the value of the secret {name} is in it, and {why}; {_BY_CHANCE}{longer}"


def planned_run(
    run_id: str,
    ready: Ready,
    options: RunOptions,
    targets: Sequence[CallbackSpec | CallbackTarget] = (),
    *,
    embedded: bool,
    kept: bool = True,
) -> RunSnapshot:
    """The record of a new run. ``embedded``: executed by this process at once, unless it waits for
    approval; others by the worker that claims them. ``kept``: in a store that others can read.
    ``targets``: callbacks of every run.

    Raises ``InvalidRunId``; ``InvalidWorkflow`` for a missing variable, and for a missing secret of
    a run that is executed here; ``InvalidOptions`` if a secret's value would be recorded.
    """
    workflow, template = ready.prepared.plan.workflow, ready.template
    approval = _approval(workflow, options.approved_by)
    begins = embedded and _may_begin(approval)
    given = {**options.vars, **options.secrets}
    check_complete(ready, given, given if begins else workflow.secrets)
    if kept:
        check_secrets_kept_out(options, workflow)
    return replace(
        template,
        run_id=check_run_id(run_id),
        status=RunStatus.RUNNING if begins else RunStatus.QUEUED,
        recovery=_recovery(options, workflow, embedded=embedded),
        approval=approval,
        queue=options.queue or template.queue,
        priority=template.priority if options.priority is None else options.priority,
        run_after=options.run_after,
        timeout=template.timeout if options.timeout is None else options.timeout,
        labels={**template.labels, **options.labels},
        retry_of=options.retry_of,
        vars=_shown({**workflow.vars, **options.vars}, workflow.secrets),
        callbacks=_targets((*targets, *workflow.callbacks, *options.callbacks)),
    )


def planned_retry(
    old: RunSnapshot, run_id: str, ready: Ready, approved_by: str | None
) -> RunSnapshot:
    """The record of a retry: like ``old``, with the steps of ``ready``. It needs its own
    approval."""
    approval = _approval(ready.source.workflow, approved_by)
    return RunSnapshot(
        run_id=check_run_id(run_id),
        workflow_name=old.workflow_name,
        workflow_version=old.workflow_version,
        workflow_digest=old.workflow_digest,
        status=RunStatus.RUNNING if _may_begin(approval) else RunStatus.QUEUED,
        approval=approval,
        queue=old.queue,
        priority=old.priority,
        timeout=old.timeout,
        labels=old.labels,
        retry_of=old.run_id,
        vars=old.vars,
        callbacks=old.callbacks,
        steps=ready.prepared.planned_steps,
    )


def queued_retry(
    old: RunSnapshot, run_id: str, ready: Ready, approved_by: str | None
) -> RunSnapshot:
    """``planned_retry`` for workers; it resumes unless the workflow says otherwise."""
    planned = planned_retry(old, run_id, ready, approved_by)
    recovery = ready.source.workflow.recovery or Recovery.RESUME
    return replace(planned, status=RunStatus.QUEUED, recovery=recovery)


def _approval(workflow: Workflow, by: str | None) -> Approval:
    if workflow.plan.mode is PlanMode.MANUAL_APPROVE:
        return Approval(required=True, by=by)
    return Approval()


def _may_begin(approval: Approval) -> bool:
    return not approval.required or approval.by is not None


def cannot_wait(file: Source, why: str) -> InvalidWorkflow:
    """For a workflow that needs approval where no process could continue it later."""
    message = f"manual-approve: {why}, so a run cannot wait for approval"
    hint = "approve it with --approve (approved_by=… in Python), or use a sqlite store"
    found = [(("plan", "mode"), message, hint)]
    return InvalidWorkflow(placed(found, file.source, file.text))


def _recovery(options: RunOptions, workflow: Workflow, *, embedded: bool) -> Recovery:
    """An embedded run ends with its process, whatever its file says: no worker executes it."""
    if embedded:
        return Recovery.INTERRUPT
    return options.recovery or workflow.recovery or Recovery.RESUME


def secret_values(
    variables: Mapping[str, Any], workflow: Workflow, secrets: Collection[str]
) -> list[Any]:
    """Values to mask: those given as secrets, or under the name of one."""
    return [variables[name] for name in {*secrets, *workflow.secrets} if name in variables]


def _shown(variables: dict[str, Any], secrets: Sequence[str]) -> dict[str, Any]:
    """Variables without secrets, however these were given."""
    if not secrets:
        return variables
    return {name: value for name, value in variables.items() if name not in secrets}


def _targets(given: Sequence[CallbackSpec | CallbackTarget]) -> tuple[CallbackTarget, ...]:
    if not given:
        return ()
    return tuple(
        each
        if isinstance(each, CallbackTarget)
        else CallbackTarget(
            name=f"callback-{number}",
            url=each.url,
            events=tuple(each.events),
            secret_env=each.secret_env,
            headers=each.headers,
        )
        for number, each in enumerate(given, 1)
    )


class Packed(Struct, frozen=True, gc=False):
    """A definition with its files, as stored with a run, and the files."""

    encoded: str
    files: Mapping[str, bytes]


async def packed(
    ready: Ready,
    variables: Mapping[str, Any],
    given: Mapping[str, bytes] | None = None,
    *,
    waits: bool,
) -> Packed:
    """``InvalidWorkflow`` for files that are too large; for a run that ``waits`` for a worker also
    for files that cannot be read now. File names that depend on secrets count as unknown.
    ``given``: the files; ``None``: those of the workflow's folder."""
    if not ready.files:
        return Packed(ready.encoded, {})
    source = ready.source
    known = {
        name: value for name, value in variables.items() if name not in source.workflow.secrets
    }
    exports = Exports(ready.prepared.plan, known)
    place = FilePlace(source.folder or ".", source.source or "workflow", given)
    found = await asyncio.to_thread(gather_files, ready.files, exports, place, strict=waits)
    files = found.files
    return Packed(replace(ready.definition, files=files).encode(), files)
