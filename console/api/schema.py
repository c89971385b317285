"""How the API describes itself: names, tags, parameters of lists, tags of documents, and every answer of refusal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from console.api.pagination import MOST_ROWS, PAGE_SIZE, Listing
from console.middleware.problem_codes import catalogue
from console.middleware.problems import CONTENT_TYPE

_STRING = {"type": "string"}
# Marks operations whose bodies may hold nothing but what is described; add_raw_routes acts on it and takes it away.
STRICT = "x-strict"
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_BODIES = frozenset({"POST", "PUT", "PATCH"})

PROBLEM = {
    "type": "object",
    "description": "Problem details (RFC 9457). Programs compare `code`; people read `detail`.",
    "properties": {
        "type": {**_STRING, "description": "urn:flotilla:problem: and the code."},
        "title": {**_STRING, "description": "The code in words."},
        "status": {"type": "integer"},
        "code": {**_STRING, "description": "Stable. docs/reference/errors.md lists all."},
        "detail": {**_STRING, "description": "One sentence about this request."},
        "errors": {
            "type": "array",
            "description": "What is wrong where.",
            "items": {
                "type": "object",
                "properties": {
                    "field": {**_STRING, "description": "Dotted path in the body, or the parameter."},
                    "pointer": {**_STRING, "description": "JSON pointer into the body (RFC 6901)."},
                    "parameter": {**_STRING, "description": "Parameter of the address."},
                    "message": _STRING,
                },
                "required": ["field", "message"],
            },
        },
        "request_id": {**_STRING, "description": "Also in X-Request-ID and in the log."},
    },
    "required": ["type", "title", "status", "code", "detail", "errors", "request_id"],
}

PARAMETERS = {
    "IfMatch": {
        "name": "If-Match",
        "in": "header",
        "required": True,
        "description": "ETag of what was read; `*` changes whatever is there. 428 without, 412 when it has changed.",
        "schema": _STRING,
    },
    "IfMatchOrNew": {
        "name": "If-Match",
        "in": "header",
        "description": "ETag of what was read. To make something new, `If-None-Match: *` instead; 428 without both.",
        "schema": _STRING,
    },
    "IfMatchOptional": {
        "name": "If-Match",
        "in": "header",
        "description": "ETag of what was read; 412 when it has changed. Unchecked without.",
        "schema": _STRING,
    },
    "IfNoneMatchNew": {
        "name": "If-None-Match",
        "in": "header",
        "description": "`*`: only if there is none yet (412).",
        "schema": {"type": "string", "enum": ["*"]},
    },
    "IfNoneMatch": {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETag of what the caller has; 304 when it is still that.",
        "schema": _STRING,
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "1 to 200 visible ASCII characters. A repeated request with the same key gets the first answer.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]{1,200}$"},
    },
    "Cursor": {
        "name": "cursor",
        "in": "query",
        "description": "From `next` or `previous`.",
        "schema": {**_STRING, "minLength": 1},
    },
    "PageSize": {
        "name": "page_size",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": PAGE_SIZE},
    },
}

_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": _STRING}},
    429: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
}


# Beside 200, of answers with bytes.
_PARTS = {
    "304": {"description": "Not modified: the caller has it (If-None-Match)."},
    "307": {"description": "The object store serves it.", "headers": {"Location": {"schema": _STRING}}},
    "416": {"description": "The range lies outside.", "headers": {"Content-Range": {"schema": _STRING}}},
}


@cache
def paged(row: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """Return the shape of one page of rows, the same whoever asks: it has one name in the description."""
    return inline_serializer(
        name=f"{row.__name__.removesuffix('Serializer')}Page",
        fields={
            "next": serializers.URLField(allow_null=True),
            "previous": serializers.URLField(allow_null=True),
            "results": row(many=True),
        },
    )


def refusals() -> dict[str, Any]:
    """Return the answer of refusal for each status, for ``components.responses``."""
    by_status: dict[int, list[str]] = {}
    for row in catalogue().values():
        by_status.setdefault(row.status, []).append(f"`{row.code}`: {row.meaning}")
    return {
        f"Problem{status}": {
            "description": "\n".join([_phrase(status), "", *(f"- {line}" for line in lines)]),
            "headers": {"X-Request-ID": {"schema": _STRING}, **_HEADERS.get(status, {})},
            "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, lines in sorted(by_status.items())
    }


def refused_with(*statuses: int) -> dict[str, Any]:
    """Return the references for these statuses, as an operation's ``responses`` hold them."""
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses}


class NamedSchema(AutoSchema):
    """Names operations after view and method: ``project_list_get``, ``node_move_drain_post``."""

    def get_operation_id(self) -> str:
        """Return the name; unique because views are."""
        words = re.findall(r"[A-Z][a-z]*", type(self.view).__name__.removesuffix("View"))
        return "_".join([*(word.lower() for word in words), *filter(None, [getattr(self.view, "verb", "")])]) + (
            f"_{self.method.lower()}"
        )

    def get_tags(self) -> list[str]:
        """Return the module of the view: one tag for each noun."""
        return [type(self.view).__module__.rpartition(".")[2].replace("_", "-")]

    def _map_serializer_field(self, field: Any, *args: Any, **kwargs: Any) -> Any:
        """Describe a column; one that is only read and None by default may be null."""
        if field.read_only and field.default is None:
            field.allow_null = True
        return super()._map_serializer_field(field, *args, **kwargs)  # type: ignore[no-untyped-call]

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        """Return the operation with everything that ApiView does for each address."""
        operation = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        own = {(one.get("in"), one.get("name")) for one in operation.get("parameters", [])}
        more = [one for one in self._parameters() if (one.get("in"), one.get("name")) not in own]
        operation["parameters"] = [*operation.get("parameters", []), *more]
        for status, answer in operation["responses"].items():
            answer["description"] = answer.get("description") or _phrase(int(status))
        operation[STRICT] = getattr(self.view, "listing", STRICT) != STRICT
        refused = refused_with(*self._statuses())
        operation["responses"] = {**operation["responses"], **refused}
        if self.method == "GET" and "200" in operation["responses"]:
            answer = operation["responses"]["200"]
            if "application/octet-stream" in answer.get("content", {}):
                operation["responses"] |= {**_PARTS, "206": {**answer, "description": "A range."}}
            if "application/json" in answer.get("content", {}):
                answer["headers"] = {"ETag": {"schema": _STRING}, **answer.get("headers", {})}
                operation["responses"]["304"] = {"description": "Not modified: the caller has it (If-None-Match)."}
        return operation

    def _parameters(self) -> Iterator[dict[str, Any]]:
        listing: Listing | None = getattr(self.view, "listing", None)
        if self.method == "GET":
            yield _reference("IfNoneMatch")
            if listing is not None:
                yield from _of_list(listing)
        if self.method in _WRITES and getattr(self.view, "keeps_answers", False):
            yield _reference("IdempotencyKey")
        if self.method == "POST" and getattr(self.view, "checks_match", False):
            yield _reference("IfMatchOptional")
        if self.method in _WRITES - {"POST"} and getattr(self.view, "needs_match", False):
            yield _reference("IfMatchOrNew" if self.method == "PUT" else "IfMatch")
            if self.method == "PUT":
                yield _reference("IfNoneMatchNew")

    def _statuses(self) -> list[int]:
        found = {400, 404, 429, 503}
        if self.get_auth():
            found |= {401, 403}
        if self.method in _WRITES:
            found |= {409, 412, 413}
        if self.method in _BODIES:
            found |= {408, 411, 415}
        if self.method in _WRITES - {"POST"}:
            found.add(428)
        if self.method in _WRITES and getattr(self.view, "keeps_answers", False):
            found.add(422)
        found |= {*getattr(self.view, "refusals", ())}
        return sorted(found)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Tells the generator what TokenAuthentication reads. Registered by being defined."""

    target_class = "console.identity.tokens.TokenAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the OpenAPI security scheme."""
        return {"type": "http", "scheme": "bearer", "description": "A token of a person, service account or node."}


def tags(names: set[str]) -> list[dict[str, str]]:
    """Return the tags with the first line of the module that holds their views."""
    found = []
    for name in sorted(names):
        module = sys.modules.get(f"console.api.v1.{name.replace('-', '_')}")
        found.append({"name": name, "description": (module.__doc__ or "").strip().partition("\n")[0] if module else ""})
    return found


def _of_list(listing: Listing) -> Iterator[dict[str, Any]]:
    if listing.is_paged:
        yield from _of_pages(listing)
    for name in listing.filters:
        yield {
            "name": name,
            "in": "query",
            "description": "Rows with this value, or one of several with commas.",
            "schema": _STRING,
        }
    for name in listing.ranges:
        words = "At or after this time." if name.endswith("__gte") else "Before this time."
        yield {
            "name": name,
            "in": "query",
            "description": words,
            "schema": {"type": "string", "format": "date-time"},
        }


def _of_pages(listing: Listing) -> Iterator[dict[str, Any]]:
    yield _reference("Cursor")
    yield _reference("PageSize")
    orders = [sign + name for name in (*listing.orderings, "id") for sign in ("", "-")]
    default = ",".join(listing.order)
    yield {
        "name": "ordering",
        "in": "query",
        "description": f"One or more, in turn; - falls. Without: {default}.",
        "explode": False,
        "style": "form",
        "schema": {"type": "array", "items": {"type": "string", "enum": orders}},
    }
    yield {
        "name": "fields",
        "in": "query",
        "description": "Names of the fields to answer with, with commas. Without: all.",
        "schema": _STRING,
    }


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/parameters/{name}"}


def _phrase(status: int) -> str:
    try:
        return f"{HTTPStatus(status).phrase}."
    except ValueError:
        return {460: "Checksum mismatch.", 499: "Client closed request."}.get(status, "Refused.")
