"""Workflows with everything done to them that all their runs share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from tenure.model.errors import InvalidOptions, InvalidWorkflow, Mistake, Wanted
from tenure.model.snapshot import RunSnapshot
from tenure.ports.action import Action
from tenure.runtime.definition import Definition
from tenure.runtime.options import RunOptions
from tenure.runtime.recipe import Prepared, prepare
from tenure.runtime.travelling import FileArgument, file_arguments
from tenure.workflow.catalogue import Catalogue
from tenure.workflow.defined import not_supplied
from tenure.workflow.parse import Parsed, check_workflow, in_order, parse_workflow, placed
from tenure.workflow.plan import make_plan
from tenure.workflow.spec import Workflow
from tenure.workflow.wording import called

_MOST = 64
_TO_RUN = "give it with --secret {name} (secrets=… in Python)"
_TO_WORKER = (
    "runs carry no secrets: start every worker of the queue with tenure worker --secret {name}, or "
    "with {variable} in its environment (secrets=… in Python)"
)


class Source(Protocol):
    """A workflow and where it came from."""

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
    given: object
    """Kept, so that its identity stays its own."""
    source: Source
    prepared: Prepared
    definition: Definition
    encoded: str
    """The definition without files, which may change from run to run."""
    files: tuple[FileArgument, ...]
    wanted: tuple[Wanted, ...]
    usual: RunSnapshot
    """Of every run, what the workflow alone says of it: a copy costs a tenth of a new record."""


Given = TypeVar("Given")


class ReadyWorkflows(Generic[Given]):
    """Workflows are values: one that was run before needs no second look."""

    def __init__(
        self,
        source_of: Callable[[Given], Source],
        actions: Callable[[], Mapping[str, Action]],
    ) -> None:
        self._source_of = source_of
        self._actions = actions
        self._ready: OrderedDict[tuple[object, ...], Ready] = OrderedDict()

    def of(self, given: Given, options: RunOptions) -> Ready:
        """``InvalidOptions``; ``InvalidWorkflow`` with all its mistakes."""
        if not isinstance(options, RunOptions):
            raise InvalidOptions([f"options must be RunOptions, and is {called(options)}"])
        key = (id(given), tuple(options.limit), options.local)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._made_ready(given, options)
            if len(self._ready) > _MOST:
                self._ready.popitem(last=False)
        else:
            self._ready.move_to_end(key)
        return ready

    def stored(self, given: Given, definition: Definition) -> Ready:
        """What a run executes that was stored before."""
        return self._prepared(given, definition)

    def _made_ready(self, given: Given, options: RunOptions) -> Ready:
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
            usual=_usual(source, prepared),
        )


def _usual(source: Source, prepared: Prepared) -> RunSnapshot:
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
    """``InvalidWorkflow`` names each that somebody must give before anything is executed."""
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
    """That a run is given all it needs. ``InvalidWorkflow`` names what it is not: all at once, and
    ``by_worker`` that the worker is who secrets are to be given to."""
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
    whom, advice = (" to the worker", _TO_WORKER) if by_worker else ("", _TO_RUN)
    missing = [
        (
            ("secrets", place),
            f"the secret {name!r} is not given{whom}",
            advice.format(name=name, variable=f"TENURE_SECRET_{name.upper()}"),
        )
        for place, name in enumerate(file.workflow.secrets)
        if name not in given
    ]
    return list(placed(missing, file.source, file.text)) if missing else []


def _checked(source: Source, catalogue: Catalogue) -> Parsed:
    """The text is read again only to say where in it something stands."""
    try:
        parsed = check_workflow(source.workflow, catalogue)
    except InvalidWorkflow:
        if source.source is not None:
            parse_workflow(source.text, catalogue, source=source.source)
        raise
    if parsed.wanted and source.source is not None:
        return parse_workflow(source.text, catalogue, source=source.source)
    return parsed
