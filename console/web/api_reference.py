"""The description of the API as people read it: groups of operations with fields, examples and commands.

Made from the OpenAPI document alone; what is not in it is not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from console.description import document
from console.web import equivalents

_BASE = "/api/v1/"
_DEPTH = 3


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field or parameter. ``kind`` in words: text, whole number, one of a, b...; ``where``: path, query, header."""

    name: str
    kind: str
    is_required: bool
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One status with its meaning; ``is_refusal``: a problem document."""

    status: str
    text: str
    is_refusal: bool


@dataclass(frozen=True, slots=True)
class OperationDoc:
    """One method of one address. ``anchor`` is unique in the whole description."""

    anchor: str
    method: str
    address: str
    summary: str
    text: str
    parameters: tuple[FieldRow, ...]
    body: tuple[FieldRow, ...]
    answer: tuple[FieldRow, ...]
    answers: tuple[Answer, ...]
    request: str
    response: str
    curl: str


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of one noun."""

    name: str
    text: str
    operations: tuple[OperationDoc, ...] = field(default=())


@cache
def groups() -> tuple[Group, ...]:
    """Return all groups by name."""
    found: dict[str, list[OperationDoc]] = {}
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            found.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    words = {tag["name"]: tag["description"] for tag in document()["tags"]}
    return tuple(Group(name, words.get(name, ""), tuple(found[name])) for name in sorted(found))


def group(name: str) -> Group | None:
    """Return one group, None if there is none of that name."""
    return next((one for one in groups() if one.name == name), None)


def _operation(path: str, method: str, operation: dict[str, Any]) -> OperationDoc:
    body, answer = operation.get("requestBody", {}), _success(operation)
    sent = _json(body).get("example")
    return OperationDoc(
        anchor=operation["operationId"],
        method=method.upper(),
        address=path.removeprefix(_BASE),
        summary=operation.get("summary", ""),
        text=operation.get("description", ""),
        parameters=tuple(_parameter(one) for one in operation.get("parameters", [])),
        body=tuple(_fields(_json(body).get("schema", {}))),
        answer=tuple(_fields(_json(answer).get("schema", {}))),
        answers=tuple(_answers(operation["responses"])),
        request=_pretty(sent),
        response=_pretty(_json(answer).get("example")),
        curl=_curl(path, method, operation, sent),
    )


def _curl(path: str, method: str, operation: dict[str, Any], body: Any) -> str:
    address = path.removeprefix(_BASE)
    parameters = [_resolved(one) for one in operation.get("parameters", [])]
    for one in parameters:
        if one["in"] == "path" and "example" in one:
            address = address.replace(f"{{{one['name']}}}", quote(str(one["example"]), safe=""))
    query = "&".join(f"{one['name']}=..." for one in parameters if one["in"] == "query" and one.get("required"))
    return equivalents.curl(method.upper(), f"{address}?{query}" if query else address, body)


def _parameter(parameter: dict[str, Any]) -> FieldRow:
    found = _resolved(parameter)
    schema = _resolved(found.get("schema", {}))
    text = found.get("description", "")
    return FieldRow(found["name"], _kind(schema), bool(found.get("required")), text, found["in"])


def _answers(responses: dict[str, Any]) -> Iterator[Answer]:
    for status, response in sorted(responses.items()):
        is_refusal = "$ref" in response
        text = _resolved(response).get("description", "").partition("\n")[0]
        yield Answer(status, text, is_refusal)


def _success(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the first answer that is no refusal."""
    found = [response for status, response in sorted(operation["responses"].items()) if status.startswith("2")]
    return dict(found[0]) if found else {}


def _json(part: dict[str, Any]) -> dict[str, Any]:
    """Return schema and example of a body or an answer in JSON."""
    return dict(part.get("content", {}).get("application/json", {}))


def _fields(schema: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[FieldRow]:
    """Yield the fields of an object, and below them those of objects inside it."""
    schema = _resolved(schema)
    required = {*schema.get("required", [])}
    for name, inner in schema.get("properties", {}).items():
        found = _resolved(inner)
        text = inner.get("description") or ("" if found is not inner else found.get("description", ""))
        yield FieldRow(f"{prefix}{name}", _kind(found), name in required, text)
        if depth < _DEPTH:
            rows = found.get("items")
            below = _resolved(rows) if rows else found
            yield from _fields(below, f"{prefix}{name}{'[]' if rows else ''}.", depth + 1)


def _kind(schema: dict[str, Any]) -> str:
    """Return a type in words."""
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(one) if one == "" else str(one) for one in schema["enum"])
    several = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
    if several:
        return " or ".join(dict.fromkeys(_kind(_resolved(one)) for one in several))
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return " or ".join(_kind({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"list of {_kind(_resolved(schema.get('items', {})))}"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false", "": "anything"}
    word = words.get(kind, kind)
    named = {"date-time": "time", "uuid": "id", "uri": "address", "email": "e-mail address", "binary": "bytes"}
    word = named.get(schema.get("format", ""), word)
    limits = [f"{say} {schema[key]}" for key, say in _LIMITS.items() if key in schema]
    return f"{word} ({', '.join(limits)})" if limits and kind in {"string", "integer", "number"} else word


_LIMITS = {"minLength": "at least", "maxLength": "at most", "minimum": "from", "maximum": "to"}


def _resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference stands for; anything else as it is."""
    while "$ref" in part:
        found: Any = document()
        for key in part["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        part = found
    return part


def _pretty(example: Any) -> str:
    return "" if example is None else json.dumps(example, indent=2, ensure_ascii=False)
