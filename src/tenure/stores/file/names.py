"""Which file is whose."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from tenure.model.errors import InvalidRunId
from tenure.model.ids import check_run_id

_JOURNAL, _LIVE, _TEMPORARY, _GATE = ".journal", ".live", ".tmp", ".gate"


class Names:
    """Run ids make good file names, except where upper and lower case are one: so a few digits
    of the id's hash are added. What comes and goes has a name that starts with a dot, which no
    run id does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def journal(self, run_id: str) -> Path:
        return self.directory / f"{run_id}.{_digest(run_id)}{_JOURNAL}"

    def live(self, run_id: str) -> Path:
        return self.directory / f"{run_id}.{_digest(run_id)}{_LIVE}"

    def temporary(self, run_id: str) -> Path:
        return self.directory / f".{run_id}.{token_hex(6)}{_TEMPORARY}"

    def gate(self, run_id: str) -> Path:
        return self.directory / f".{run_id}.{_digest(run_id)}{_GATE}"


def run_of_journal(name: str) -> str | None:
    return _run_of(name, _JOURNAL)


def run_of_live(name: str) -> str | None:
    return _run_of(name, _LIVE)


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith((_TEMPORARY, _GATE))


def _run_of(name: str, suffix: str) -> str | None:
    """The run a file belongs to; ``None`` for files that are not this store's."""
    run_id, _, digest = name.removesuffix(suffix).rpartition(".")
    ours = name.endswith(suffix) and is_run_id(run_id) and digest == _digest(run_id)
    return run_id if ours else None


def is_run_id(run_id: str) -> bool:
    """What is none never becomes part of a path."""
    try:
        check_run_id(run_id)
    except InvalidRunId:
        return False
    return True


def _digest(run_id: str) -> str:
    return sha256(run_id.encode()).hexdigest()[:8]


def tie_break(run_id: str) -> int:
    """Orders runs born in the same microsecond; fits a cursor."""
    return int(sha256(run_id.encode()).hexdigest()[:15], 16)
