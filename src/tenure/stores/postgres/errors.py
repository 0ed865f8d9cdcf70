"""What the driver's errors mean to a user of the store."""

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
"""What is wrong with a value, told apart from what is wrong with the server."""
DRIVER_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError, OSError, NotImplementedError)

_PREPARED_ELSEWHERE = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
_EXTENDING_A_FILE = ("mdextend", "mdzeroextend")
_SEVERAL_FAILED = "Multiple connection attempts failed"
_HOST_TOLD_TWICE = re.compile("^host: .* connection failed: (?=connection to server)")


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
    """What became of each server that was asked. All of them are told: the dead primary is the
    news, not the replica beside it."""
    if not isinstance(error, psycopg.OperationalError):
        return translation(address, error)
    several = _SEVERAL_FAILED in str(error)
    told = [
        _HOST_TOLD_TWICE.sub("", line[2:])
        for line in str(error).splitlines()
        if line.startswith("- ")
    ]
    answers = told if several else [str(error)]
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
        return StoreUnavailable(f"no server of {address.place} takes writes: {'; '.join(told)}")
    return translation(address, error)


def takes_no_writes(address: Address, said: str) -> StoreUnavailable:
    """Of a server that did when it was reached."""
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
    """A run is retried while another retry of it is queued or running."""
    if not isinstance(error, errors.UniqueViolation):
        return False
    return error.diag.constraint_name == "runs_active_retry"


def _is_out_of_space(error: Exception) -> bool:
    """A limit on the size of files or a quota has no code of its own: it is known by where in the
    server it was met. (What the server says is in its own language.)"""
    if isinstance(error, errors.DiskFull):
        return True
    return isinstance(error, psycopg.Error) and error.diag.source_function in _EXTENDING_A_FILE
