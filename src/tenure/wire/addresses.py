"""URLs of stores and brokers without credentials, for messages, logs and output. The only way to
show one."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from tenure.wire.callbacks import MASK

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*", re.ASCII)
_PLACE = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?")
_HARMLESS = frozenset(
    {
        "application_name",
        "connect_timeout",
        "connections",
        "db",
        "dbname",
        "host",
        "hostaddr",
        "namespace",
        "port",
        "prepared",
        "sslmode",
        "statement_timeout",
        "target_session_attrs",
        "user",
        "username",
        "wakeups",
    }
)
"""Parameters whose values are shown. Any other may be a secret of a store that is not ours."""


def shown_address(url: str) -> str:
    """``url`` without anything that may be a credential, even if it is no URL at all."""
    scheme, colon, rest = url.partition(":")
    if not colon:
        return MASK if re.search(r"[=@\s]", url) else url
    if not _SCHEME.fullmatch(scheme):
        return MASK
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}:{MASK}"
    if not parts.netloc and not rest.startswith("//"):
        return url if re.fullmatch(r"[\w./~-]*", rest) else f"{scheme}:{MASK}"
    user, at, host = parts.netloc.rpartition("@")
    if parts.netloc and "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # A password with an unescaped slash, question mark or hash: the apparent host is a part
        # of it.
        return f"{scheme}://{MASK}"
    if not all(map(_PLACE.fullmatch, host.split(","))):  # something other than a port
        return f"{scheme}://{MASK}"
    if ":" in user:
        user = f"{user.partition(':')[0]}:{MASK}"
    shown = f"{scheme}://{user}{at}{host}{parts.path}"
    if parts.query:
        shown += "?" + "&".join(map(_shown_parameter, parts.query.split("&")))
    return f"{shown}#{MASK}" if parts.fragment else shown


def _shown_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return MASK
    return text if name in _HARMLESS and ";" not in value else f"{name}={MASK}"
