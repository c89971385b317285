"""Registering, listing and unregistering shared memory over HTTP."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.frontends.http.answers import JSON_HEADERS, respond_json
from serving_node.frontends.http.json_data import parse_small
from serving_node.frontends.http.routes import RouteTable
from serving_node.frontends.restricted_access import ApiCategory
from serving_node.frontends.shared_memory import HANDLE_BYTES, RegionKind, SharedMemory
from serving_node.wire.exchange import HttpExchange

_UINT64_MAX = 2**64 - 1


class SharedMemoryHandlers:
    """The handlers of both kinds of memory; ``add_routes`` puts them into a route table."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def add_routes(self, table: RouteTable) -> None:
        """Add the routes."""
        for kind, register in ((RegionKind.SYSTEM, self._register_system), (RegionKind.CUDA, self._register_cuda)):
            prefix, category = f"/v2/{kind}sharedmemory{{region}}", ApiCategory.SHARED_MEMORY
            table.add(f"{prefix}/status", category, GET=partial(self._status, kind))
            table.add(f"{prefix}/register", category, POST=register)
            table.add(f"{prefix}/unregister", category, POST=partial(self._unregister, kind))

    def _status(self, kind: RegionKind, exchange: HttpExchange, name: str, version: str) -> None:
        facts = self._memory.status(kind, name)
        respond_json(exchange, [{"name": fact.name, **fact.details} for fact in facts])

    def _register_system(self, exchange: HttpExchange, name: str, version: str) -> None:
        self._memory.check_registration(RegionKind.SYSTEM, name)
        document = parse_small(exchange.body)
        key = _string(_field(document, "key"))
        offset = _unsigned(document["offset"]) if "offset" in document else 0
        byte_size = _unsigned(_field(document, "byte_size"))
        self._memory.register_system(name, key, offset, byte_size)
        exchange.respond(200, JSON_HEADERS)

    def _register_cuda(self, exchange: HttpExchange, name: str, version: str) -> None:
        self._memory.check_registration(RegionKind.CUDA, name)
        document = parse_small(exchange.body)
        text = _string(_member(_field(document, "raw_handle"), "b64"))
        byte_size = _unsigned(_member(document, "byte_size"))
        device = _unsigned(_member(document, "device_id"))
        try:
            handle = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            handle = b""
        if len(handle) != HANDLE_BYTES:
            sentence = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
            raise InferenceError(ErrorCode.INVALID_ARG, sentence)
        self._memory.register_cuda(name, handle, device, byte_size)
        exchange.respond(200, JSON_HEADERS)

    def _unregister(self, kind: RegionKind, exchange: HttpExchange, name: str, version: str) -> None:
        self._memory.unregister(kind, name)
        exchange.respond(200, JSON_HEADERS)


def _field(document: Any, key: str) -> Any:
    """Return a member that registering needs."""
    if not isinstance(document, dict) or key not in document:
        raise InferenceError(ErrorCode.INVALID_ARG, f"Shared memory register request has no '{key}' field")
    return document[key]


def _member(document: Any, key: str) -> Any:
    if not isinstance(document, dict) or key not in document:
        sentence = f"attempt to access non-existing object member '{key}'"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    return document[key]


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise InferenceError(ErrorCode.INTERNAL, "attempt to access JSON non-string as string")
    return value


def _unsigned(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _UINT64_MAX:
        sentence = "attempt to access JSON non-unsigned-integer as unsigned-integer"
        raise InferenceError(ErrorCode.INTERNAL, sentence)
    return value
