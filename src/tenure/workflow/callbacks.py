"""Rules for callback targets, the same wherever one is given (workflow, settings, command line,
Python), and checked again where it is used.

URL and headers may come from an untrusted submitter. They must not set what only Tenure may set
(signature, content type, framing), nor be ambiguous to another parser. No message repeats a URL or
the value of a header: either may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from tenure.model.snapshot import CallbackTarget
from tenure.workflow.spec import CallbackSpec

HOOK_PREFIX = "TENURE_HOOK_"
KEY_PREFIX = "whsec_"
_HOOK = re.compile(rf"{HOOK_PREFIX}[A-Z0-9_]+", re.ASCII)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_RESERVED_HEADERS = frozenset({"content-type", "host"})
_RESERVED_PREFIXES = ("webhook-", "tenure-")
_CONNECTION_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_AMBIGUOUS = {
    "a space": re.compile(r"[\x20\xa0]"),
    "a backslash": re.compile(r"\\"),
    "a control character": re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"),
    "half a character": re.compile(r"[\ud800-\udfff]"),
}
_PORT = re.compile(r"[0-9]{1,5}")
_NUMERIC = re.compile(r"\.*[0-9][0-9.]*")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_MAX_HOST_CHARACTERS = 253


class Fault(NamedTuple):
    """A mistake; ``path`` is its place in the target."""

    path: tuple[str, ...]
    message: str
    hint: str | None = None


def faults_of(url: str, headers: Mapping[str, str], secret_env: str | None) -> Iterator[Fault]:
    """Every mistake in a target."""
    broken = fault_of_url(url)
    if broken is not None:
        yield broken
    known: set[str] = set()
    for name, value in headers.items():
        message = _problem_of_header(name, value, known)
        known.add(name.lower())
        if message is not None:
            yield Fault(("headers", name), message)
    if secret_env is not None:
        broken = fault_of_secret_env(secret_env)
        if broken is not None:
            yield broken


def fault_of_url(url: str) -> Fault | None:
    found = _problem_of_url(url)
    if found is None:
        return None
    message, hint = found
    return Fault(("url",), message, hint)


def fault_of_secret_env(variable: str) -> Fault | None:
    """Without the prefix a submitter could have any variable of the sending process used as a key,
    and guess its value by trial."""
    if _HOOK.fullmatch(variable):
        return None
    hint = "give the name of a variable, not the secret itself"
    if not variable.startswith(KEY_PREFIX):
        word = re.sub("[^A-Z0-9_]+", "_", variable.upper()).removeprefix(HOOK_PREFIX).strip("_")
        hint = f"name it {HOOK_PREFIX}{word[:40] or 'SHOP'}"
    return Fault(("secret_env",), f"must be {HOOK_PREFIX} and then A-Z, 0-9 or _", hint)


class Signing:
    """Which secrets this process signs with, and for which origins: a submitter chooses both.

    By the settings (``hooks``, ``own`` targets), and for workflows of the user of this process.
    """

    def __init__(
        self,
        hooks: Mapping[str, Iterable[str]] = {},
        own: Iterable[CallbackSpec | CallbackTarget] = (),
    ) -> None:
        self._pairs = {(name, origin) for name, origins in hooks.items() for origin in origins}
        self.trust(own)
        self.others_may = False
        """Whether another process may sign what this one refuses."""

    def trust(self, own: Iterable[CallbackSpec | CallbackTarget]) -> None:
        self._pairs.update((each.secret_env, _origin(each.url)) for each in own if each.secret_env)
        self.others_may = True

    def fault_of(self, target: CallbackSpec | CallbackTarget) -> Fault | None:
        """Of a target that has no others."""
        name = target.secret_env
        if name is None or (name, origin := _origin(target.url)) in self._pairs:
            return None
        message = f"{name} may not sign for {origin} where callbacks are sent"
        hint = f"list it in the settings there: origins in [hooks.{name.removeprefix(HOOK_PREFIX)}]"
        return Fault(("secret_env",), message, hint)


def read_hooks(given: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Origins by variable. ``ValueError`` says what is wrong."""
    found = {}
    for name, origins in given.items():
        variable = HOOK_PREFIX + name.removeprefix(HOOK_PREFIX)
        if fault_of_secret_env(variable):
            raise ValueError(f"{name[:40]!r} must be A-Z, 0-9 or _, as SHOP for {HOOK_PREFIX}SHOP")
        if not isinstance(origins, list | tuple) or not all(map(_is_origin, origins)):
            raise ValueError(f'{name}: origins must be a list like ["https://hooks.example"]')
        found[variable] = tuple(map(_origin, origins))
    return found


def _is_origin(text: object) -> bool:
    if not isinstance(text, str) or fault_of_url(text):
        return False
    return urlsplit(text)[2:] in (("", "", ""), ("/", "", ""))


def _origin(url: str | None) -> str:
    from yarl import URL  # as above

    address = URL(url or "")
    return f"{address.scheme}://{address.host_subcomponent}:{address.port}"


def _problem_of_url(url: str) -> tuple[str, str | None] | None:
    for what, pattern in _AMBIGUOUS.items():
        if pattern.search(url):
            return f"holds {what}", None
    try:
        parts = urlsplit(url)
    except ValueError:
        hint = "brackets belong around an IPv6 address, and nowhere else" if "[" in url else None
        return "cannot be read as an address", hint
    if parts.scheme not in ("http", "https") or not url[len(parts.scheme) :].startswith("://"):
        return "must begin with http:// or https://", None
    if "@" in parts.netloc:
        return (
            "holds a user name or a password, and addresses are shown to people",
            "give it in a header, Authorization",
        )
    problem = _problem_of_place(parts)
    return None if problem is None else (problem, None)


def _problem_of_place(parts: SplitResult) -> str | None:
    host, colon, port = parts.netloc.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = parts.netloc, ""
    if port and not (_PORT.fullmatch(port) and 1 <= int(port) <= 65535):
        return "has a port that is no number from 1 to 65535"
    if not host:
        return "names no host"
    if host.startswith("["):
        return None if _is_ipv6(host[1:-1]) else "has something in brackets that is no IPv6 address"
    return _problem_of_name(host)


def _problem_of_name(written: str) -> str | None:
    host = written if written.isascii() else _in_ascii(written)
    if host is None:
        return "names a host with characters that no name can have"
    if _NUMERIC.fullmatch(host):
        return None if _is_ipv4(host) else "names its host by numbers that are no IPv4 address"
    if len(host) > _MAX_HOST_CHARACTERS:
        return f"names a host with more than {_MAX_HOST_CHARACTERS} characters"
    if not all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
        return (
            "names a host that is no name: letters, digits, - and _, up to 63 of them between dots"
        )
    return None


def _in_ascii(host: str) -> str | None:
    from yarl import URL  # used by the sender too; few hosts need it

    try:
        return URL.build(scheme="http", host=host).raw_host
    except ValueError:
        return None


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _problem_of_header(name: str, value: str, known: set[str]) -> str | None:
    lowered = name.lower()
    if not _NAME.fullmatch(name):
        return "is no name a header could have"
    if not _VALUE.fullmatch(value):
        return "has a value that is not printable ASCII on one line"
    if lowered in _RESERVED_HEADERS or lowered.startswith(_RESERVED_PREFIXES):
        return "is set by Tenure and cannot be replaced"
    if lowered in _CONNECTION_HEADERS or lowered.startswith("proxy-"):
        return "belongs to the connection, not to a target"
    return "is given twice, in different spellings" if lowered in known else None
