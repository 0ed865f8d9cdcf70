"""Every error Tenure raises, in one tree.

TenureError
├── InvalidRunId                 the id breaks the rules; nothing was stored
├── InvalidOptions               run options of the wrong type; nothing was stored
├── RunnerClosed                 this runner was closed; open it again, or create another
├── UnknownStore                 no such kind of store URL, or its extra is not installed
├── UnknownBroker                the same for a broker URL
├── BrokerUnavailable            hints do not arrive; runs are found by polling
├── InvalidWorkflow              all mistakes of a workflow, each with its place
├── ExpressionError              an expression or variable that has no value
├── InvalidAction                cannot be registered: its name is taken, or its shape is wrong
├── UnknownAction                no installed package offers an action of that name
├── InvalidArguments             an action cannot work with its arguments
├── InvalidExports               what a command exported cannot be read
├── TransportError               a command on a host failed for other reasons than its exit code
│   ├── HostUnreachable          it could not be contacted; nothing was started
│   ├── NotStarted               the command could not be started; nothing ran
│   ├── StillRunning             it was told to end, and its end could not be confirmed
│   ├── SupervisorLost           it was ended with its supervisor; nothing of it is left
│   └── Untrusted                it was ended: its run may have another owner by now
└── StoreError
    ├── RunNotFound
    ├── DeliveryNotFound
    ├── OutputNotFound           the run has no such step, host or item
    ├── StoreUnavailable         outcome unknown: send the same update_id again
    ├── StoreIncompatible        schema or library this version must not use
    ├── StoreLost                the opened store is gone: give up
    ├── NotSupported             this kind of store lacks the capability
    ├── NotPermitted             the gateway does not allow that with this token
    ├── KeyReused                this key was used for another request before
    └── Refused                  the store refused the write; nothing was written
        ├── RunExists
        ├── LeaseLost            stop, kill local children, never retry
        ├── LeaseHeld            another owner holds it; try again after its expiry
        ├── NotRunnable
        ├── VersionConflict      decide again on the newer record
        ├── InvalidTransition
        ├── DeliveryLost         another relay holds or settled this delivery
        └── StoreRejected        this value can never be stored

Adapters translate driver errors at their border with ``raise … from``; a driver's own
exception never reaches a caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from tenure.model.status import RunStatus


class TenureError(Exception):
    """Root of every error this library raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Make errors picklable with all their facts, whatever their constructors take."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[TenureError], args: tuple[object, ...], facts: dict[str, object]) -> object:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidRunId(TenureError, ValueError):
    """A run id must be 8-128 characters: first alphanumeric, then ``[A-Za-z0-9._:-]``."""


class InvalidOptions(TenureError, ValueError):
    """Invalid run options. ``problems`` lists all of them, each naming its option."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class RunnerClosed(TenureError, RuntimeError):
    """This runner was closed, and would not release what it opened now."""

    def __init__(self) -> None:
        super().__init__("this runner is closed; open it again with `async with runner:`")


class InvalidCursor(TenureError, ValueError):
    """The page cursor is not one this store handed out."""


class UnknownStore(TenureError, ValueError):
    """The store URL names no installed kind of store."""


class UnknownBroker(TenureError, ValueError):
    """The broker URL names no installed kind of broker, or has parts that kind does not take."""


class BrokerUnavailable(TenureError):
    """The broker did not answer, or not as expected: runs are found by polling."""


class Mistake(Struct, frozen=True, kw_only=True):
    """One thing wrong with a workflow, where it is, and what was probably meant.

    ``line`` and ``column`` count from 1; they are ``None`` for a workflow built in Python, which
    has a ``path`` only.
    """

    message: str
    path: str = ""
    hint: str | None = None
    source: str = "workflow"
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"
        words = (place, self.path, self.message) if self.path else (place, self.message)
        return ": ".join(words) + (f"; {self.hint}" if self.hint else "")


class Wanted(Struct, frozen=True, kw_only=True):
    """A variable that the run must be given, or that is misspelt."""

    name: str
    certain: bool
    """The step that uses it is certain to fail without it."""
    step: int | None
    """Where it is used; ``None`` for a handler."""
    said: Mistake


class InvalidWorkflow(TenureError, ValueError):
    """The workflow cannot be run as it is. Nothing was stored or executed.

    ``mistakes`` are all that could be found, in the order of the file.
    """

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))


class ExpressionError(TenureError, ValueError):
    """An expression, or text with expressions in it, has no value here.

    Its syntax is wrong, it names something undefined, or evaluating it costs too much. ``hint`` is
    what was probably meant; ``offset`` its place in the text, if known; ``undefined`` the missing
    variable, if that is all that is wrong; ``further`` other mistakes in the same text.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        offset: int | None = None,
        undefined: str | None = None,
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.offset = offset
        self.undefined = undefined
        self.further: list[ExpressionError] = []


class InvalidAction(TenureError, ValueError):
    """The action cannot be offered under this name or in this shape."""


class UnknownAction(TenureError, KeyError):
    """No installed package offers an action of that name."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class InvalidArguments(TenureError, ValueError):
    """An action cannot work with the arguments it was given; it did nothing."""


class InvalidExports(TenureError, ValueError):
    """What a command wrote to ``$TENURE_OUTPUT`` or printed as exports cannot be read."""


class TransportError(TenureError):
    """A host could not be reached, or a command on it not be started or ended."""


class HostUnreachable(TransportError):
    """The host could not be contacted; nothing was started on it."""

    def __init__(self, host: str, address: str, why: str) -> None:
        super().__init__(f"host {host} at {address} cannot be reached: {why}")
        self.host = host
        self.address = address


class NotStarted(TransportError):
    """The host was reached, but the command could not be started on it; nothing ran."""


class StillRunning(TransportError):
    """A cancelled command could not be ended, or its end not be confirmed.

    Raised in place of ``CancelledError``, which would claim that it is gone.
    """


class SupervisorLost(TransportError):
    """The supervisor of the command was killed. Nothing of the command is left, and how it would
    have ended is not known."""


class Untrusted(TransportError):
    """The command was ended, or not even started, because the lease of its run was not renewed in
    time: the run may have another owner."""


class StoreError(TenureError):
    """Any answer of a store other than success."""


class RunNotFound(StoreError, LookupError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} in this store")
        self.run_id = run_id


class DeliveryNotFound(StoreError, LookupError):
    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"no callback delivery {delivery_id!r} in this store")
        self.delivery_id = delivery_id


class OutputNotFound(StoreError, LookupError):
    """The run has no such step, host or item; the message lists those it has."""


class StoreUnavailable(StoreError):
    """The store could not answer. The write may or may not have happened.

    Send the same call with the same ``update_id`` again: the store recognises its own success.
    """


class StoreIncompatible(StoreError):
    """This store's schema or library must not be used by this version of Tenure."""


class StoreLost(StoreError):
    """The store was removed or replaced while it was in use. Retrying cannot help."""


class NotSupported(StoreError):
    """This kind of store lacks the capability."""


class NotPermitted(StoreError):
    """A gateway in front of the store does not allow that without a token, or with this one.
    Retrying cannot help."""


class KeyReused(StoreError):
    """The key of a request was used for another request before, and stands for the run of that one.
    Nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            "this key was used for another request: a key names one request, with all that is in "
            "it, so that it can be sent again; take a new key for a new request"
        )


class Refused(StoreError):
    """The store refused the write and left no trace of it."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id}: {why}" if run_id else why)
        self.run_id = run_id


class RunExists(Refused):
    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, "this run_id is taken; choose another or leave it out")


class LeaseLost(Refused):
    """The writer's fence or owner id is not (or no longer) the run's.

    Raised also for an update that was applied before ownership moved on: its sender must not
    continue. ``fence`` and ``owner_id`` are the run's present ones.
    """

    def __init__(self, run_id: str, *, fence: int, owner_id: str | None) -> None:
        holder = f"owner {owner_id}" if owner_id else "no owner"
        super().__init__(run_id, f"lease lost; held by {holder} at fence {fence}")
        self.fence = fence
        self.owner_id = owner_id


class LeaseHeld(Refused):
    """Another owner holds a live lease. ``expires_at`` says when to try again."""

    def __init__(self, run_id: str, *, owner_id: str | None, expires_at: datetime | None) -> None:
        until = f" until {expires_at.isoformat()}" if expires_at else ""
        super().__init__(run_id, f"owned by {owner_id}{until}")
        self.owner_id = owner_id
        self.expires_at = expires_at


class NotRunnable(Refused):
    """The run is not held, yet it may not be claimed; the message says why."""


class AlreadyRetried(NotRunnable):
    """Another retry of the same run, or of one of its retries, is queued or running."""


class VersionConflict(Refused):
    """The update was based on an older version.

    Carries what an owner needs to rebase its delta without reading the record.
    """

    def __init__(
        self,
        run_id: str,
        *,
        base_version: int | None,
        version: int,
        fence: int,
        status: RunStatus,
        cancel_requested_at: datetime | None,
    ) -> None:
        super().__init__(run_id, f"is at version {version}, the update was based on {base_version}")
        self.base_version = base_version
        self.version = version
        self.fence = fence
        self.status = status
        self.cancel_requested_at = cancel_requested_at


class InvalidTransition(Refused):
    """The status table does not allow this change."""


class DeliveryLost(Refused):
    """The delivery is no longer held under the token that tried to settle it."""


class StoreRejected(Refused):
    """The store can never hold this value; retrying cannot help."""
