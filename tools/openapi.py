"""Write ``docs/reference/openapi.json`` and ``docs/reference/http-api.md`` from the routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.generated import write_or_check

from tenure.gateway.calls import Route
from tenure.gateway.openapi import document
from tenure.gateway.problems import KINDS, Kind
from tenure.gateway.routes import ROUTES
from tenure.model.tokens import Role
from tenure.wire.answers import PREFIX

HEAD = f"""\
# HTTP API

<!-- Written by `make docs` from src/tenure/gateway/routes.py. `make check` compares. -->

`tenure gateway` serves it, and so does `tenure up`; how to begin is told in
[query a run from your application](../guides/query-over-http.md). The same for programs is
[openapi.json](openapi.json), served at `/openapi.json`; the gateway shows it to people at `/docs`.

- Bodies are JSON, with `content-type: application/json`. Fields that are not known are refused; in
  answers fields may be added: ignore what you do not know. Times are RFC 3339, UTC.
- A token is sent as `Authorization: Bearer tenure_…`, never in an address. Without one only
  `/healthz`, `/readyz`, `/openapi.json` and `/docs` answer; with `--no-token` everything does, for
  the gateway's own machine.
- Lists come in pages: hand `cursor` back to get the next one.
- Errors are problem documents (RFC 9457, `application/problem+json`). Tell them apart by `type`,
  which is `{PREFIX}` and a name of the [table below](#problems). What any request may meet (a token
  that is not taken, a store that does not answer) is not repeated for each.

Roles: {", ".join(f"`{role}`" for role in Role)}. A `viewer` reads; an `operator` also submits and
steers; a `worker` reads and executes; an `admin` may do everything. A token that is limited to
queues sees the runs of those alone: others are not found.

`POST /v1/updates` is for workers over HTTP (`tenure worker --store https://…`): it takes what the
owner of a run writes under its lease. Operators submit runs and use `cancel`, `approve`, `retry`
and `annotate`: what a run is (name, digest, steps, approval) is derived from its workflow here.
What an admin writes past the verbs is stored as sent.
"""


def page(_: str = "") -> str:
    made = document(ROUTES)
    lines = [HEAD]
    for route in ROUTES:
        operation = made["paths"][route.path][route.method.lower()]
        lines += _route(route, operation)
    lines += ["## Problems", "", "| name | status | meaning |", "|---|---|---|"]
    lines += [_problem(kind) for kind in sorted(KINDS, key=lambda each: (each.status, each.name))]
    lines += ["", "## Shapes", ""]
    for name, schema in sorted(made["components"]["schemas"].items()):
        lines += _shape(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _route(route: Route[Any, Any], operation: dict[str, Any]) -> Iterator[str]:
    yield f"## {route.method} {route.path}"
    yield ""
    roles = "no token needed" if route.roles is None else ", ".join(sorted(route.roles))
    yield f"{route.summary}. ({roles})"
    yield ""
    parameters = operation["parameters"]
    if parameters:
        yield "| parameter | in | value |"
        yield "|---|---|---|"
        for each in parameters:
            said = each.get("description") or _kind(each["schema"])
            yield f"| `{each['name']}` | {each['in']} | {said} |"
        yield ""
    if route.body is not None:
        optional = " (may be left out)" if route.body_optional else ""
        yield f"Takes [{route.body.__name__}](#{route.body.__name__.lower()}){optional}."
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).get("application/json")
        if content is not None and int(status) in route.answers:
            yield f"Answers {status} with {_kind(content['schema'])}."
    if route.problems:
        yield f"Problems of its own: {', '.join(f'`{kind.name}`' for kind in route.problems)}."
    yield ""


def _problem(kind: Kind) -> str:
    said = [part for part in (kind.title, kind.detail, kind.advice) if part]
    return f"| `{kind.name}` | {kind.status} | {'; '.join(said)} |"


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if "description" in schema:
        yield " ".join(str(schema["description"]).replace("``", "`").split())
        yield ""
    if "enum" in schema:
        yield f"One of {', '.join(f'`{each}`' for each in schema['enum'])}."
        yield ""
    if schema.get("properties"):
        required = schema.get("required", ())
        yield "| field | value |"
        yield "|---|---|"
        for field, of in schema["properties"].items():
            optional = "" if field in required else "; may be left out"
            yield f"| `{field}` | {_kind(of)}{optional} |"
        yield ""


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {_kind(values)}" if isinstance(values, dict) and values else "object"
    words = {"date-time": "time", "null": "null"}.get(schema.get("format", kind), kind)
    if "contentEncoding" in schema:
        words = schema["contentEncoding"]
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("maximum", "up to"), ("default", "default"))
        if schema.get(key) not in (None, "", [])
    ]
    return ", ".join([words, *bounds])


def text(_: str) -> str:
    return json.dumps(document(ROUTES), indent=2, sort_keys=True) + "\n"


def main(arguments: list[str] | None = None) -> int:
    return write_or_check({"openapi.json": text, "http-api.md": page}, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
