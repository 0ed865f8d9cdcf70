"""Secrets as they stand in HTML and XML: which quotes are escaped, and how, differs by program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_ALWAYS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CHARACTERS = "&<>\"'"
_STYLES: tuple[Mapping[str, str], ...] = (
    _ALWAYS,  # where quotes mean nothing
    _ALWAYS | {'"': "&quot;"},  # in XML attributes
    _ALWAYS | {'"': "&quot;", "'": "&#x27;"},  # html.escape, Django, React
    _ALWAYS | {'"': "&quot;", "'": "&#39;"},  # Ruby, lodash
    _ALWAYS | {'"': "&quot;", "'": "&#039;"},  # PHP
    _ALWAYS | {'"': "&quot;", "'": "&apos;"},  # PHP for XML, Java
    _ALWAYS | {'"': "&#34;", "'": "&#39;"},  # Jinja2, Go's html
    _ALWAYS | {'"': "&#34;", "'": "&#39;", "+": "&#43;"},  # Go's html/template
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "/": "&#x2F;"},  # as OWASP advises
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "`": "&#x60;"},  # underscore
    _ALWAYS | {'"': "&quot;", "'": "&#x27;", "`": "&#x60;", "=": "&#x3D;"},  # Handlebars
    _ALWAYS | {'"': "&quot;", "'": "&#39;", "/": "&#x2F;", "`": "&#x60;", "=": "&#x3D;"},
    {each: f"&#{ord(each)};" for each in _CHARACTERS},
    {each: f"&#x{ord(each):x};" for each in _CHARACTERS},
    {each: f"&#x{ord(each):X};" for each in _CHARACTERS},
)
"""``&`` goes first: it is what the others are replaced with."""


def written_in_markup(text: str) -> Iterator[str]:
    """Most of them are the same for most texts."""
    for style in _STYLES:
        written = text
        for character, escape in style.items():
            written = written.replace(character, escape)
        yield written
        if not written.isascii():  # a document that says of itself that it is ASCII
            yield written.encode("ascii", errors="xmlcharrefreplace").decode()
