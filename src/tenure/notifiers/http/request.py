"""A request as it goes over the wire: one text.

What a target asks for was checked by ``callback_rules`` and cannot break out of its line; neither
can an id from a store. Here, where lines are made, both are looked at once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from yarl import URL

from tenure._version import __version__

_ALWAYS = {
    "content-type": "application/json",
    "user-agent": f"tenure/{__version__}",
    "accept": "*/*",
    "accept-encoding": "identity",
}
_WORD = re.compile(r"[\x21-\x7e]+")
_LINE = re.compile(r"[\t\x20-\x7e]*")
_ZONE = re.compile(r"%[^]]*\]")


def opening(url: URL, headers: Mapping[str, str]) -> str:
    """What is the same in every request to a target. ``headers`` are named in lower case.
    ``ValueError`` if anything would be more than one line of printable ASCII."""
    fields = {"host": _host(url), **_ALWAYS, **headers}
    path = url.raw_path_qs
    if not (_WORD.fullmatch(path) and all(map(_LINE.fullmatch, (*fields, *fields.values())))):
        raise ValueError("a head is made of lines of printable ASCII")
    return f"POST {path} HTTP/1.1\r\n{_lines(fields)}"


def request(opening: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """``ValueError`` as above."""
    for value in headers.values():
        if not (value.isascii() and value.isprintable()):
            raise ValueError("a head is made of lines of printable ASCII")
    head = f"{opening}{_lines(headers)}content-length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def headers_of(sent: bytes) -> dict[str, str]:
    """All that a request said of itself."""
    head, _, _ = sent.partition(b"\r\n\r\n")
    _, *lines = head.decode("ascii").split("\r\n")
    parted = (line.partition(": ") for line in lines)
    return {name: value for name, _, value in parted}


def _host(url: URL) -> str:
    """Without a zone, as in ``[fe80::1%eth0]``: it means nothing to the other side."""
    return _ZONE.sub("]", url.host_port_subcomponent or "")


def _lines(fields: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
