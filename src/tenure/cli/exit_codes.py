"""Exit codes: one table for all commands, and the exit code and advice for each error."""

from __future__ import annotations

import errno
from enum import IntEnum

TYPE_CHECKING = False  # the codes are needed before anything heavy is loaded
if TYPE_CHECKING:
    from tenure.model.errors import TenureError


class Exit(IntEnum):
    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    CANCELED = 3
    INTERRUPTED = 4
    NOT_FOUND = 5
    STORE = 6
    REFUSED = 7
    DEFECT = 70
    HARD_STOP = 130


MEANING = {
    Exit.SUCCESS: "success; a reading command could answer",
    Exit.FAILED: "the run failed; `doctor` or `store check` found something; a callback was not "
    "taken",
    Exit.USAGE: "wrong usage, settings or workflow; nothing was stored or executed",
    Exit.CANCELED: "the run was canceled",
    Exit.INTERRUPTED: "the run was interrupted: its process ended before it did",
    Exit.NOT_FOUND: "no such run, step, host, callback or token; no runs yet",
    Exit.STORE: "the store is not there, or it or the network did not answer",
    Exit.REFUSED: "refused: run id in use, lease held by another process, not permitted, not "
    "supported by this kind of store; the run waits for approval",
    Exit.DEFECT: "a defect of Tenure itself; please report it",
    Exit.HARD_STOP: "stopped at once by a second signal, or before anything began",
}

READER_LEFT = (errno.EPIPE, errno.EIO)
"""Errors of a closed pipe and a closed terminal. The command could answer and the reader has left:
no failure."""

OF_STATUS = {
    "success": Exit.SUCCESS,
    "failed": Exit.FAILED,
    "canceled": Exit.CANCELED,
    "interrupted": Exit.INTERRUPTED,
}
"""Exit codes of commands that wait for a run, by how it ended."""


def verdict(error: TenureError) -> tuple[Exit, str | None]:
    """The exit code, and advice if the message itself has none."""
    from tenure.cli.commands.logs import NoSuchOutput
    from tenure.cli.commands.token import NoSuchToken
    from tenure.cli.context import NoRunsYet, NoSuchStore
    from tenure.config import InvalidSettings
    from tenure.gateway.problems import CannotListen, NotSafe
    from tenure.model import errors

    look = "`tenure list` shows the runs this store has; --store names another store"
    doctor = "`tenure doctor` looks closer"
    rows: tuple[tuple[type[TenureError], Exit, str | None], ...] = (
        (errors.RunNotFound, Exit.NOT_FOUND, look),
        (errors.DeliveryNotFound, Exit.NOT_FOUND, "`tenure callbacks list` shows those there are"),
        (NoSuchOutput, Exit.NOT_FOUND, None),
        (errors.OutputNotFound, Exit.NOT_FOUND, None),
        (NoSuchToken, Exit.NOT_FOUND, "`tenure token list` shows those there are"),
        (NotSafe, Exit.REFUSED, None),
        (CannotListen, Exit.STORE, None),
        (NoRunsYet, Exit.NOT_FOUND, "start one: tenure run workflow.yaml"),
        (NoSuchStore, Exit.STORE, "look at its name; if that is right, `tenure run` creates it"),
        (InvalidSettings, Exit.USAGE, "`tenure doctor` shows where each setting comes from"),
        (errors.InvalidCursor, Exit.USAGE, "start again without --cursor"),
        (errors.LeaseLost, Exit.REFUSED, "another process goes on with the run: tenure watch"),
        (errors.LeaseHeld, Exit.REFUSED, "try again after its lease has expired: tenure explain"),
        (errors.Refused, Exit.REFUSED, None),
        (errors.NotSupported, Exit.REFUSED, None),
        (errors.KeyReused, Exit.REFUSED, None),
        (errors.NotPermitted, Exit.REFUSED, "TENURE_TOKEN holds the token to send"),
        (errors.StoreLost, Exit.STORE, None),
        (errors.StoreError, Exit.STORE, doctor),
        (errors.TransportError, Exit.STORE, None),
        (errors.TenureError, Exit.USAGE, None),
    )
    return next((code, advice) for kind, code, advice in rows if isinstance(error, kind))
