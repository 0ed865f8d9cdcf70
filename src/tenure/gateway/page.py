"""The document as a page for people: no script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Any

import msgspec

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font: 600 1rem/1.5 ui-monospace, monospace; margin: 2rem 0 0 }
h2 b { display: inline-block; min-width: 4rem }
code { font: 0.9em ui-monospace, monospace }
table { border-collapse: collapse; margin: 0.5rem 0 }
td { padding: 0.1rem 1rem 0.1rem 0; vertical-align: top }
small { color: #666 }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PAGE_POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; frame-ancestors 'none'"


@cache
def page(document: bytes) -> bytes:
    return "".join(_lines(msgspec.json.decode(document))).encode()


def _lines(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    yield '<!doctype html><html lang="en"><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
    yield f"<p>{_marked(info['description'])}</p>"
    yield '<p>For programs: <a href="/openapi.json">/openapi.json</a>. Send a token as '
    yield "<code>Authorization: Bearer tenure_…</code>; <code>tenure token create</code> makes one."
    yield "</p>"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method, path, operation)


def _operation(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><b>{method.upper()}</b> {escape(path)}</h2>"
    roles = operation.get("x-roles")
    who = f"Roles: {', '.join(roles)}." if roles else "Needs no token."
    yield f"<p>{escape(operation['summary'])}. <small>{escape(who)}</small></p><table>"
    for each in operation["parameters"]:
        yield _row(each["name"], each["in"], _kind(each["schema"]), each.get("description", ""))
    body = operation.get("requestBody")
    if body is not None:
        yield _row("body", "JSON", _kind(body["content"]["application/json"]["schema"]), "")
    for status, answer in operation["responses"].items():
        yield _row(status, "answer", _answer_kind(answer), answer["description"])
    yield "</table>"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{_marked(cell)}' for cell in cells)}"


def _marked(text: str) -> str:
    """Between backquotes stands code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _answer_kind(answer: dict[str, Any]) -> str:
    kinds = (_kind(content["schema"]) for content in answer.get("content", {}).values())
    return " or ".join(kinds)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = str(schema.get("format", schema.get("type", "any")))
    return f"{_kind(schema['items'])}, …" if "items" in schema else kind
