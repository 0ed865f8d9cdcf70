"""The admin token of a gateway, on the machine where it runs.

A store without tokens gets one when its first gateway starts: a file of this user's holds it. While
a gateway serves, a record beside it says at which origin, so that commands of the same user find
the token, and send it nowhere else.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tenure.client.transport import is_here
from tenure.config import data_folder
from tenure.gateway.problems import NotSafe
from tenure.model.tokens import PREFIX, Role, Token, bearer_of, digest_of, written
from tenure.ports.leases import Presence
from tenure.ports.store import TokenStore
from tenure.system import SystemClock, new_owner_id, presence

FIRST_ID = "first"
"""Of the token that a store gets with its first gateway: of several that start at once only one
adds a row with this id."""
FIRST_NAME = "admin"
_FOLDER = "gateways"
_GIVEN = re.compile(r"tenure_([A-Za-z0-9.-]{1,64})_([!-~]{32,200})", re.ASCII)
_MAX_FILE_BYTES = 4096


class _Record(Struct, frozen=True, kw_only=True):
    """One gateway that serves."""

    origin: str
    owner_id: str
    token_file: str


class AdminToken(NamedTuple):
    path: Path
    is_new: bool


# The gateway's side.


async def admin_token(store: TokenStore, given: Path | None) -> AdminToken | None:
    """Where the gateway's own token is, made if the store has none at all. ``given`` holds one that
    the store shall have. ``None``: there are tokens, none of them in a file of this user's.
    ``NotSafe``."""
    if given is not None:
        return AdminToken(given, await _provide(store, given))
    known = await store.list_tokens()
    if not known:
        made = await _make_first(store)
        if made is not None:
            return AdminToken(made, is_new=True)
        known = await store.list_tokens()  # another gateway was first, perhaps of this user
    found = _kept(known)
    return None if found is None else AdminToken(found, is_new=False)


async def _provide(store: TokenStore, given: Path) -> bool:
    match = _GIVEN.fullmatch(_read(given).strip())
    if match is None:
        raise NotSafe(
            f"{given} holds no token: it reads tenure_NAME_SECRET, with a secret of 32 characters "
            "or more"
        )
    token_id, secret = match.groups()
    new = Token(id=token_id, name=token_id, role=Role.ADMIN, digest=digest_of(secret))
    kept = await store.add_token(new)
    if kept.digest != new.digest or kept.role is not Role.ADMIN:
        raise NotSafe(f"the store has another token with the id {token_id!r} of {given}")
    if not kept.is_valid(SystemClock().now()):
        raise NotSafe(f"the token in {given} has expired or was revoked; put another one there")
    return False


async def _make_first(store: TokenStore) -> Path | None:
    """The file is there before the store knows the token: a token that is in no file would keep
    everyone out."""
    secret = secrets.token_urlsafe(32).replace("_", "-")
    path = _folder() / "admin.token"
    if path.exists():  # another store's
        path = path.with_name(f"admin-{secrets.token_hex(4)}.token")
    _write(path, written(FIRST_ID, secret) + "\n", anew=True)
    new = Token(id=FIRST_ID, name=FIRST_NAME, role=Role.ADMIN, digest=digest_of(secret))
    if await store.add_first_token(new):
        return path
    path.unlink(missing_ok=True)
    return None


def _kept(known: list[Token]) -> Path | None:
    """The file whose token this store knows as a valid admin's."""
    folder, now = data_folder(), SystemClock().now()
    if folder is None:
        return None
    for path in sorted((folder / _FOLDER).glob("*.token")):
        with suppress(OSError, ValueError):
            token = bearer_of(_read(path).strip(), known)
            if token is not None and token.is_valid(now) and token.role is Role.ADMIN:
                return path
    return None


@contextmanager
def recorded(address: str, token: AdminToken | None) -> Iterator[None]:
    """Commands of this user on this machine find the token, while this is entered."""
    folder, origin = data_folder(), _origin(address)
    if token is None or folder is None or not is_here(urlsplit(origin).hostname or ""):
        yield
        return
    path, ours = folder / _FOLDER / _record_name(origin), new_owner_id()
    record = _Record(origin=origin, owner_id=ours, token_file=str(token.path.absolute()))
    with suppress(OSError, NotSafe):  # then TENURE_TOKEN is needed, as everywhere else
        _folder()
        _write(path, msgspec.json.encode(record).decode())
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if _decoded(path).owner_id == ours:
                path.unlink()


def _origin(address: str) -> str:
    """As it is reached from this machine, if it listens at all its addresses. At any other than
    loopback there may be another machine tomorrow."""
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _folder() -> Path:
    """``NotSafe``."""
    folder = data_folder()
    if folder is None:
        raise NotSafe(
            "there are no tokens, and no place for a new one, since neither HOME nor XDG_DATA_HOME "
            "is set: name a file that holds one with --token-file"
        )
    place = folder / _FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _not_written(place, error) from error
    return place


def _write(path: Path, text: str, *, anew: bool = False) -> None:
    """Whole or not at all, and for this user's eyes; ``anew``: in place of no other file.
    ``NotSafe``."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
        if anew:
            path.hardlink_to(draft)
        else:
            draft.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> NotSafe:
    return NotSafe(
        f"the admin token cannot be kept in {path}: {error.strerror}; name a file that holds one "
        "with --token-file"
    )


def _read(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(_MAX_FILE_BYTES).decode("ascii", "replace")


# The side of commands.


def token_for(
    url: str,
    environ: Mapping[str, str] | None = None,
    is_there: Callable[[str], Presence] = presence,
) -> str | None:
    """The token of a gateway that this user runs at the origin of ``url``. Not that of one which
    is gone: its port may be another user's by now."""
    folder = data_folder(environ)
    if folder is None:
        return None
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        record = _decoded(folder / _FOLDER / _record_name(origin))
        if record.origin != origin or is_there(record.owner_id) is Presence.GONE:
            return None
        text = _read(Path(record.token_file)).strip()
    except (OSError, ValueError):
        return None
    return text if text.startswith(PREFIX) else None


def _record_name(origin: str) -> str:
    return f"{origin.removeprefix('http://').replace('/', '_')}.json"


def _decoded(path: Path) -> _Record:
    return msgspec.json.decode(path.read_bytes(), type=_Record)
