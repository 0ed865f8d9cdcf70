"""The driver's errors as store errors."""

from __future__ import annotations

import re

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
"""Errors of a value, not of the server."""
DRIVER_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError, OSError, NotImplementedError)

_PREPARED_ELSEWHERE = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
_EXTENDING_A_FILE = ("mdextend", "mdzeroextend")
_SEVERAL_FAILED = "Multiple connection attempts failed"
_REPEATED_HOST = re.compile("^host: .* connection failed: (?=connection to server)")


def translation(address: Address, error: Exception) -> StoreError:
    place = address.place
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
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


def not_connected(address: Address, error: Exception) -> StoreError:
    """Names the result of each server: the dead primary matters, not the replica beside it."""
    if not isinstance(error, psycopg.OperationalError):
        return translation(address, error)
    several = _SEVERAL_FAILED in str(error)
    each = [
        _REPEATED_HOST.sub("", line[2:])
        for line in str(error).splitlines()
        if line.startswith("- ")
    ]
    answers = each if several else [str(error)]
    if all("session is read-only" in answer for answer in answers):
        return StoreUnavailable(
            f"{address.place} is a read replica, or was made read-only: it must not decide "
            "who owns a run. Name the primary in the store URL, or all servers, host1,host2"
        )
    if all("timeout expired" in answer for answer in answers):
        return StoreUnavailable(
            f"{address.place} did not answer within {address.connect_timeout:g} s"
        )
    if several:
        return StoreUnavailable(f"no server of {address.place} takes writes: {'; '.join(each)}")
    return translation(address, error)


def takes_no_writes(address: Address, said: str) -> StoreUnavailable:
    """For a server that took writes when it was connected."""
    if address.servers > 1:
        return StoreUnavailable(
            f"the server of {address.place} that was reached is a read replica or was made "
            f"read-only ({said}): nothing was written, and the next call looks for one that does "
            "take writes"
        )
    return StoreUnavailable(
        f"{address.place} is a read replica or was made read-only ({said}): nothing was written. "
        "Name the primary in the store URL, or all servers, host1,host2"
    )


def is_second_retry(error: Exception) -> bool:
    """Whether another retry of the run is queued or running."""
    if not isinstance(error, errors.UniqueViolation):
        return False
    return error.diag.constraint_name == "runs_active_retry"


def _is_out_of_space(error: Exception) -> bool:
    """A quota or a limit of file sizes has no error code: identified by the server's function."""
    if isinstance(error, errors.DiskFull):
        return True
    return isinstance(error, psycopg.Error) and error.diag.source_function in _EXTENDING_A_FILE
