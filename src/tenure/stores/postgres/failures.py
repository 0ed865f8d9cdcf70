"""What the driver's errors mean to whoever uses the store."""

from __future__ import annotations

import psycopg
from psycopg import errors

from tenure.model.errors import StoreError, StoreIncompatible, StoreUnavailable
from tenure.stores.postgres.address import Address

DATA_ERRORS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    errors.ProgramLimitExceeded,
    UnicodeEncodeError,
    OverflowError,
)
"""What is wrong with a value, told apart from what is wrong with the server."""
DRIVER_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError, OSError, NotImplementedError)


def translation(address: Address, error: Exception) -> StoreError:
    place = address.place
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if is_full_queue(error):
        return StoreUnavailable(
            f"the queue of notifications of the server {place} is full ({said}): somebody listens, "
            "in this or another database, and does not end his transaction. Until he does, hints "
            "are lost, and what they tell of is found by looking"
        )
    if isinstance(error, DATA_ERRORS):
        return StoreError(f"no such value can be looked up in {place}: {said}")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return takes_no_writes(address, said)
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreIncompatible(
            f"{place} lets this user do too little ({said}): grant it the schema 'tenure', or "
            "migrate with the user that owns it"
        )
    if isinstance(error, NotImplementedError):
        return StoreIncompatible(
            f"{place} tells times in a style that cannot be read ({said}): it seems that a pooler "
            "does not keep the one of each client. Set it for the role: alter role … set datestyle "
            "= 'ISO'"
        )
    if isinstance(error, _PREPARED_ELSEWHERE):
        return StoreIncompatible(
            f"{place} does not keep what each client has prepared ({said}): it seems that a pooler "
            "hands each transaction to another server connection. Say prepared=no in the store URL"
        )
    if isinstance(error, psycopg.ProgrammingError):
        return StoreIncompatible(
            f"{place} has no schema of this version of Tenure ({said}): run `tenure store migrate`,"
            " or upgrade Tenure on this machine"
        )
    if _is_out_of_space(error):
        return StoreUnavailable(
            f"no space left on the server {place} ({said}): nothing was written; free some and try "
            "again"
        )
    if isinstance(error, errors.QueryCanceled):
        return StoreUnavailable(f"{place} took too long and was stopped ({said})")
    return StoreUnavailable(f"{place}: {said}")


def takes_no_writes(address: Address, said: str) -> StoreUnavailable:
    """Of a server that did when it was reached."""
    if address.several:
        return StoreUnavailable(
            f"the server of {address.place} that was reached is a read replica or was made "
            f"read-only ({said}): nothing was written, and the next call looks for one that does "
            "take writes"
        )
    return StoreUnavailable(
        f"{address.place} is a read replica or was made read-only ({said}): nothing was written. "
        "Name the primary in the store URL, or all servers, host1,host2"
    )


def is_full_queue(error: BaseException | None) -> bool:
    """Of notifications. Nothing is wrong with any value, and nothing was written; but the code is
    that of a value which is too large, so it is known by where in the server it was met."""
    return isinstance(error, psycopg.Error) and error.diag.source_function == _TELLING


def is_second_retry(error: Exception) -> bool:
    """A run is retried while another retry of it is queued or running."""
    if not isinstance(error, errors.UniqueViolation):
        return False
    return error.diag.constraint_name == "runs_active_retry"


def _is_out_of_space(error: Exception) -> bool:
    """A limit on the size of files or a quota has no code of its own: it is known by where in the
    server it was met. (What the server says is in its own language.)"""
    if isinstance(error, errors.DiskFull):
        return True
    return isinstance(error, psycopg.Error) and error.diag.source_function in _EXTENDING


_PREPARED_ELSEWHERE = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
_EXTENDING = ("mdextend", "mdzeroextend")
_TELLING = "PreCommit_Notify"
