"""The OpenAPI 3.1 document of a table of routes, and the same as an HTML page."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

import msgspec

from tenure._version import __version__
from tenure.gateway.calls import Route
from tenure.gateway.problems import (
    BUSY,
    DEFECT,
    FORBIDDEN,
    FOREIGN_ORIGIN,
    MALFORMED,
    STORE_UNAVAILABLE,
    STORE_UNUSABLE,
    TOO_LARGE,
    TOO_MANY,
    TOO_SLOW,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA,
    Kind,
)
from tenure.gateway.routing import repeatable
from tenure.wire.answers import PROBLEM_MEDIA_TYPE, Problem, full

_TO_SHAPES = "#/components/schemas/"
_REF = _TO_SHAPES + "{name}"
_ANY = (MALFORMED, DEFECT, BUSY)
_WITH_TOKEN = (
    UNAUTHORIZED,
    FORBIDDEN,
    FOREIGN_ORIGIN,
    TOO_MANY,
    STORE_UNAVAILABLE,
    STORE_UNUSABLE,
)
_WITH_BODY = (TOO_SLOW, TOO_LARGE, UNSUPPORTED_MEDIA)
PATHS = {
    "run_id": {"type": "string", "minLength": 8, "maxLength": 128},
    "step_index": {"type": "integer", "minimum": 0},
    "host": {"type": "string", "minLength": 1},
    "delivery_id": {"type": "string", "minLength": 1},
    "owner_id": {"type": "string", "minLength": 1, "maxLength": 500},
}
"""Descriptions of path parameters."""


def document(routes: Sequence[Route[Any, Any]]) -> dict[str, Any]:
    shapes = _shapes(routes)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route in routes:
        paths[route.path][route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure gateway",
            "version": __version__,
            "description": "Runs of workflows: submit, read, steer. Errors are problem documents "
            "(RFC 9457); tell them apart by `type`.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": shapes.named,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def encoded(routes: Sequence[Route[Any, Any]]) -> bytes:
    return msgspec.json.encode(document(routes), order="sorted")


def problems_of(route: Route[Any, Any]) -> dict[int, list[Kind]]:
    """Every problem that a route may answer with, by status."""
    found = [*_ANY, *route.problems]
    if route.roles is not None:
        found += _WITH_TOKEN
    if route.body is not None:
        found += _WITH_BODY
    by_status: dict[int, list[Kind]] = defaultdict(list)
    for kind in sorted(found):
        by_status[kind.status].append(kind)
    return dict(sorted(by_status.items()))


class Shapes(NamedTuple):
    """``named`` are the schemas referred to; ``of`` has a schema or reference for each type.
    Queries are described parameter by parameter."""

    named: dict[str, Any]
    of: dict[Any, Any]
    queries: dict[str, Any]


def _shapes(routes: Sequence[Route[Any, Any]]) -> Shapes:
    """A request may leave out fields with defaults, an answer has all fields: a type used for both
    gets two schemas."""
    answers: dict[Any, None] = {Problem: None}
    requests: dict[Any, None] = {}
    for route in routes:
        shown = (full(kind) for kind in route.answers.values() if _is_json(kind))
        answers.update(dict.fromkeys(shown))
        requests |= {route.query: None} | ({} if route.body is None else {route.body: None})
    answered, named = msgspec.json.schema_components(list(answers), ref_template=_REF)
    asked, sent = msgspec.json.schema_components(list(requests), ref_template=_REF)
    both = {name: f"New{name}" for name, of in sent.items() if name in named and "properties" in of}
    sent = {both.get(name, name): _renamed(of, both) for name, of in sent.items()}
    of = dict(zip(answers, answered, strict=True))
    of |= zip(requests, (_renamed(each, both) for each in asked), strict=True)
    queries = {name: sent.pop(name) for name in {route.query.__name__ for route in routes}}
    return Shapes(named | sent, of, queries)


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    """``schema`` with references to the renamed types."""
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if isinstance(schema, dict):
        return {key: _renamed(part, names) for key, part in schema.items()}
    if isinstance(schema, str) and schema.startswith(_TO_SHAPES):
        name = schema.removeprefix(_TO_SHAPES)
        return _TO_SHAPES + names.get(name, name)
    return schema


def _is_json(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, str)


def _operation(route: Route[Any, Any], shapes: Shapes) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [*_path(route), *_query(route, shapes), *_headers(route)],
        "responses": _responses(route, shapes),
    }
    if route.body is not None:
        content = {"application/json": {"schema": shapes.of[route.body]}}
        operation["requestBody"] = {"content": content, "required": not route.body_optional}
    if route.roles is None:
        operation["security"] = []
    else:
        operation["security"] = [{"token": []}]
        operation["x-roles"] = sorted(route.roles)
    return operation


def _path(route: Route[Any, Any]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": PATHS[name]}
        for name in route.parameters
    ]


def _query(route: Route[Any, Any], shapes: Shapes) -> list[dict[str, Any]]:
    schema = shapes.queries[route.query.__name__]
    several = repeatable(route.query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _without_null(of),
            **({"explode": True} if name in several else {}),
        }
        for name, of in schema["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is given or not; null cannot be written in a query."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    default = schema.get("default")
    if default is not None:
        rest["default"] = default
    if len(choices) == 1:
        return {**rest, **choices[0]}
    return {**rest, "anyOf": choices} if choices else rest


def _headers(route: Route[Any, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": said,
            "schema": {"type": "string", "maxLength": 255},
        }
        for name, said in route.request_headers.items()
        if name != "Accept"
    ]


def _responses(route: Route[Any, Any], shapes: Shapes) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, kind in route.answers.items():
        responses[str(status)] = _answer(status, kind, shapes)
    if route.streams:
        content = responses["200"]["content"]
        content["text/event-stream"] = {"schema": {"type": "string"}}
    for status, kinds in problems_of(route).items():
        said = ", ".join(f"`{kind.name}`" for kind in kinds)
        problem = {PROBLEM_MEDIA_TYPE: {"schema": shapes.of[Problem]}}
        entry = responses.setdefault(str(status), {"description": said, "content": {}})
        entry["content"] = {**entry.get("content", {}), **problem}
    return responses


def _answer(status: int, kind: Any, shapes: Shapes) -> dict[str, Any]:
    if kind is None:
        return {"description": "No content." if status == 204 else "Not modified."}
    if isinstance(kind, str):
        return {"description": "A page.", "content": {kind: {"schema": {"type": "string"}}}}
    content: dict[str, Any] = {"application/json": {"schema": shapes.of[full(kind)]}}
    return {"description": "Created." if status == 201 else "The answer.", "content": content}


# An HTML page without scripts or external resources.


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
            yield from _operation_section(method, path, operation)


def _operation_section(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><b>{method.upper()}</b> {escape(path)}</h2>"
    roles = operation.get("x-roles")
    roles_text = f"Roles: {', '.join(roles)}." if roles else "Needs no token."
    yield f"<p>{escape(operation['summary'])}. <small>{escape(roles_text)}</small></p><table>"
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
    """Text between backquotes becomes code."""
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
