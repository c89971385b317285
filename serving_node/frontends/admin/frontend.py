"""The control API of a joined node: desired state in, observed state out, and a few questions for people.

Every call needs the node's secret as a bearer token. One handler for each path; bodies are small JSON.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
import structlog

from serving_node.contract.control import Desired
from serving_node.contract.engine_builds import BuildOrder
from serving_node.contract.errors import ContractError, ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.dataplane import DataPlane
from serving_node.frontends.admin.infer_codec import decode_binary, decode_request, encode_outline, encode_response
from serving_node.frontends.http_status import HTTP_STATUS_OF
from serving_node.observability.logging import LogBuffer
from serving_node.repository.blob_store import BlobError, BlobStore
from serving_node.repository.desired_rules import DesiredConflictError
from serving_node.repository.desired_state import DesiredState
from serving_node.repository.engine_builds import EngineBuilds
from serving_node.wire.http1 import Http1Limits, Http1Server, HttpExchange
from serving_node.wire.listener import Listener

log = structlog.get_logger(__name__)

_JSON = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_BYTES = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]
_LIMITS = Http1Limits(max_body_bytes=34 * 1024 * 1024)
_MAX_JSON_BYTES = 8 * 1024 * 1024
_MAX_POLL_SECONDS = 60.0
_MAX_INFER_SECONDS = 60.0
_MAX_INFER_BYTES = 2 * 1024 * 1024
_MAX_LOG_LINES = 2000
_MAX_PIECE_BYTES = 8 * 1024 * 1024
_BLOB_STATUS = {"in_use": 409, "not_found": 404}

Answer = tuple[int, Any]
Query = dict[str, str]


class AdminFrontend:
    """Answers the control plane's calls. ``listener`` starts and stops it; ``secret`` is never logged."""

    def __init__(
        self,
        dataplane: DataPlane,
        desired: DesiredState,
        blobs: BlobStore,
        logs: LogBuffer,
        builds: EngineBuilds,
        *,
        secret: str,
    ) -> None:
        self._dataplane = dataplane
        self._desired = desired
        self._blobs = blobs
        self._logs = logs
        self._builds = builds
        self._authorization = f"Bearer {secret}".encode()
        self._tasks: set[asyncio.Task[None]] = set()
        self.listener: Listener = Http1Server(self.handle, _LIMITS, max_connections=256).listener

    def handle(self, exchange: HttpExchange) -> None:
        """Answer one call, now or later. Called by the connection."""
        given = exchange.headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, self._authorization):
            _respond(exchange, 401, {"error": "a valid bearer token is needed"}, (b"www-authenticate", b"Bearer"))
            return
        task = asyncio.ensure_future(self._answer(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def leave() -> None:
            task.cancel()

        exchange.on_disconnect = leave

    async def _answer(self, exchange: HttpExchange) -> None:
        try:
            status, document = await self._route(exchange)
        except ContractError as error:
            status, document = 400, {"error": error.message, "field": error.field}
        except DesiredConflictError as error:
            status, document = 409, {"error": str(error)}
        except BlobError as error:
            status, document = _BLOB_STATUS.get(error.code, 400), {"error": error.message, "code": error.code}
        except InferenceError as error:
            status, document = HTTP_STATUS_OF[error.code], {"error": error.message, "code": error.code.value}
        except OSError as error:
            log.error("admin.disk_error", path=exchange.path.decode("latin-1"), reason=str(error))
            status, document = 507, {"error": f"the node cannot write its state: {error.strerror or error}"}
        except Exception:
            log.exception("admin.failed", path=exchange.path.decode("latin-1"))
            status, document = 500, {"error": "internal error"}
        if not exchange.disconnected:
            _respond(exchange, status, document)

    async def _route(self, exchange: HttpExchange) -> Answer:
        try:
            parts = [unquote_to_bytes(part).decode() for part in exchange.path.strip(b"/").split(b"/")]
            query = dict(parse_qsl(exchange.query.decode()))
        except UnicodeDecodeError:
            return 400, {"error": "the path is not UTF-8"}
        # by method, first part of the path, and number of parts
        handlers: dict[tuple[str, str, int], Callable[..., Awaitable[Answer]]] = {
            ("PUT", "desired", 1): self._put_desired,
            ("GET", "observed", 1): self._get_observed,
            ("GET", "logs", 1): self._get_logs,
            ("GET", "blobs", 1): self._get_blobs,
            ("GET", "blobs", 2): self._get_blob,
            ("DELETE", "blobs", 2): self._delete_blob,
            ("GET", "healthz", 1): self._get_health,
            ("POST", "infer", 2): self._post_infer,
            ("POST", "measure", 2): self._post_measure,
            ("GET", "builds", 1): self._get_builds,
            ("POST", "builds", 1): self._post_build,
            ("GET", "builds", 2): self._get_build,
            ("DELETE", "builds", 2): self._delete_build,
        }
        if len(parts) < 2 or parts[0] != "v1":
            return 404, {"error": "Not Found"}
        place = (parts[1], len(parts) - 1)
        handler = handlers.get((exchange.method, *place))
        if handler is None:
            known = any((name, count) == place for _, name, count in handlers)
            return (405, {"error": "Method Not Allowed"}) if known else (404, {"error": "Not Found"})
        if parts[1] != "measure" and len(exchange.body) > _MAX_JSON_BYTES:
            return 413, {"error": f"the body is larger than {_MAX_JSON_BYTES} bytes"}
        return await handler(exchange, query, *parts[2:])

    async def _put_desired(self, exchange: HttpExchange, query: Query) -> Answer:
        desired = Desired.from_json(_body(exchange))
        return 200, (await self._desired.accept(desired)).to_json()

    async def _get_observed(self, exchange: HttpExchange, query: Query) -> Answer:
        if "after" not in query:
            return 200, self._desired.observed().to_json()
        after = int(_number(query, "after", 0))
        timeout = min(_number(query, "timeout", 30), _MAX_POLL_SECONDS)
        return 200, (await self._desired.wait_observed(after, timeout)).to_json()

    async def _get_logs(self, exchange: HttpExchange, query: Query) -> Answer:
        count = min(int(_number(query, "tail", 200)), _MAX_LOG_LINES)
        return 200, {"lines": self._logs.tail(count)}

    async def _get_blobs(self, exchange: HttpExchange, query: Query) -> Answer:
        blobs = [
            {"sha256": blob.sha256, "size": blob.size, "last_used": blob.last_used, "in_use": blob.in_use}
            for blob in self._blobs.list()
        ]
        return 200, {"blobs": blobs, "used_bytes": self._blobs.used_bytes(), "quota_bytes": self._blobs.quota_bytes}

    async def _get_blob(self, exchange: HttpExchange, query: Query, sha256: str) -> Answer:
        """Answer with a piece of a blob: how an engine that was built here comes to the control plane."""
        offset, size = int(_number(query, "offset", 0)), int(_number(query, "size", _MAX_PIECE_BYTES))
        return 200, await asyncio.to_thread(self._blobs.read, sha256, offset, min(size, _MAX_PIECE_BYTES))

    async def _delete_blob(self, exchange: HttpExchange, query: Query, sha256: str) -> Answer:
        return 200, {"deleted": await asyncio.to_thread(self._blobs.delete, sha256)}

    async def _get_builds(self, exchange: HttpExchange, query: Query) -> Answer:
        return 200, {"builds": [status.to_json() for status in self._builds.list()]}

    async def _post_build(self, exchange: HttpExchange, query: Query) -> Answer:
        return 202, (await self._builds.start(BuildOrder.from_json(_body(exchange)))).to_json()

    async def _get_build(self, exchange: HttpExchange, query: Query, identity: str) -> Answer:
        after = int(_number(query, "after", 0)) if "after" in query else -1
        timeout = min(_number(query, "timeout", 30), _MAX_POLL_SECONDS)
        return 200, (await self._builds.status(identity, after, timeout)).to_json()

    async def _delete_build(self, exchange: HttpExchange, query: Query, identity: str) -> Answer:
        return 200, (await self._builds.cancel(identity)).to_json()

    async def _get_health(self, exchange: HttpExchange, query: Query) -> Answer:
        return 200, {"live": self._dataplane.server_live(), "ready": self._dataplane.server_ready()}

    async def _post_infer(self, exchange: HttpExchange, query: Query, model: str) -> Answer:
        """Run one request like any other, and wait for its answer."""
        if len(exchange.body) > _MAX_INFER_BYTES:
            return 413, {"error": f"the body is larger than {_MAX_INFER_BYTES} bytes"}
        document = _body(exchange)
        version, unit = query.get("version", ""), query.get("unit", "")
        return 200, encode_response(
            await self._infer(query, lambda on_response: decode_request(model, version, unit, document, on_response))
        )

    async def _post_measure(self, exchange: HttpExchange, query: Query, model: str) -> Answer:
        """Run one request with binary inputs by a unit; answer with the times and without the outputs' data."""
        length = exchange.headers.get(b"inference-header-content-length", b"").decode("latin-1")
        if not length.isascii() or not length.isdigit() or int(length) > len(exchange.body):
            return 400, {"error": "the header 'inference-header-content-length' must say where the tensors begin"}
        head, tensors = memoryview(exchange.body)[: int(length)], memoryview(exchange.body)[int(length) :]
        unit = query.get("unit", "")
        return 200, encode_outline(
            await self._infer(query, lambda on_response: decode_binary(model, unit, head, tensors, on_response))
        )

    async def _infer(
        self, query: Query, decode: Callable[[Callable[[InferenceResponse], None]], InferenceRequest]
    ) -> InferenceResponse:
        """Submit what ``decode`` makes and return the answer. A caller that leaves cancels it."""
        future: asyncio.Future[InferenceResponse] = asyncio.get_running_loop().create_future()

        def on_response(response: InferenceResponse) -> None:
            if not future.done() and (response.outputs or response.error or response.final):
                future.set_result(response)

        request = decode(on_response)
        self._dataplane.infer(request)
        timeout = min(_number(query, "timeout", 30), _MAX_INFER_SECONDS)
        try:
            response = await asyncio.wait_for(future, timeout)
        except TimeoutError:
            request.cancel()
            raise InferenceError(ErrorCode.UNAVAILABLE, f"no answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            request.cancel()
            raise
        if response.error is not None:
            raise response.error
        return response


def _body(exchange: HttpExchange) -> Any:
    try:
        return orjson.loads(exchange.body)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"the body is not JSON: {error}") from error


def _number(query: Query, name: str, default: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e18:
        raise ContractError(f"'{name}' must be a number from 0 on", field=name)
    return value


def _respond(exchange: HttpExchange, status: int, document: Any, *more: tuple[bytes, bytes]) -> None:
    if isinstance(document, bytes):
        exchange.respond(status, [*_BYTES, *more], [document])
    else:
        exchange.respond(status, [*_JSON, *more], [orjson.dumps(document)])
