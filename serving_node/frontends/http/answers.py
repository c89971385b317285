"""Answers of the HTTP frontend: JSON bodies and errors."""

from __future__ import annotations

from typing import Any

import orjson

from serving_node.core.errors import InferenceError
from serving_node.frontends.http_status import HTTP_STATUS_OF
from serving_node.wire.exchange import Headers, HttpExchange

# What answers without a body say, as Triton's do.
TEXT_HEADERS: Headers = ((b"content-type", b"text/plain"),)
JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)


def respond_json(exchange: HttpExchange, document: Any) -> None:
    """Answer 200 with a JSON document."""
    exchange.respond(200, JSON_HEADERS, [orjson.dumps(document)])


def respond_error(exchange: HttpExchange, status: int, message: str, extra: Headers = ()) -> None:
    """Answer with ``{"error": message}``."""
    body = orjson.dumps({"error": message.encode("utf-8", "replace").decode()})
    exchange.respond(status, [*JSON_HEADERS, *extra], [body])


def respond_failure(exchange: HttpExchange, error: InferenceError) -> None:
    """Answer with the status and the text of an error."""
    respond_error(exchange, HTTP_STATUS_OF[error.code], error.message)
