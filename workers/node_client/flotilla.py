"""Client of a Flotilla node: JSON over HTTP to its admin port, with the node's bearer secret."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.parse
from types import TracebackType
from typing import Any, Self

import httpx2
from django.utils.translation import gettext as _

from serving_node.contract.control import Desired, Observed
from serving_node.contract.errors import ContractError
from workers.node_client.client import BinaryRequest, Exposition, NodeAddress, Target
from workers.node_client.connection import Connection
from workers.node_client.errors import NodeClientError, NodeErrorCode

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 32 * 1024**2
PROTOBUF_EXPOSITION = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
_ACCEPT_METRICS = f"{PROTOBUF_EXPOSITION}, text/plain;version=0.0.4;q=0.5"

_BY_STATUS = {
    400: NodeErrorCode.INVALID,
    401: NodeErrorCode.UNAUTHORIZED,
    403: NodeErrorCode.UNAUTHORIZED,
    404: NodeErrorCode.NOT_FOUND,
    409: NodeErrorCode.CONFLICT,
    413: NodeErrorCode.TOO_LARGE,
    429: NodeErrorCode.UNAVAILABLE,
    501: NodeErrorCode.INVALID,
    503: NodeErrorCode.UNAVAILABLE,
    504: NodeErrorCode.TIMEOUT,
}


def _trust(address: NodeAddress) -> ssl.SSLContext | bool:
    """Return what a node's certificate is checked against."""
    if not any(url.startswith("https:") for url in (address.admin_url, address.metrics_url)):
        return False  # loading the certificate bundle costs tens of milliseconds; plain http needs none
    return ssl.create_default_context(cafile=address.ca_file or None)


class FlotillaNodeClient:
    """See NodeClient. Answers above ``MAX_ANSWER_BYTES`` are refused while they arrive, redirects are not followed."""

    def __init__(self, address: NodeAddress, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._address = address
        self._words = {"node": address.name}
        self._idle: list[Connection] = []  # of calls that measure
        self._http = httpx2.AsyncClient(
            transport=transport,
            trust_env=False,  # a proxy from the environment must never see the admin secret
            verify=_trust(address),
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        )

    async def put_desired(self, desired: Desired) -> Observed:
        answer = await self.admin("PUT", "/v1/desired", body=desired.to_json())
        return self._read_observed(answer)

    async def observed(self, *, after: int | None, timeout_seconds: float) -> Observed:
        if after is None:
            return self._read_observed(await self.admin("GET", "/v1/observed"))
        query = {"after": str(after), "timeout": f"{timeout_seconds:g}"}
        answer = await self.admin("GET", "/v1/observed", query=query, wait=timeout_seconds)
        return self._read_observed(answer)

    async def infer(
        self, model: str, body: dict[str, Any], *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        path = "/v1/infer/" + urllib.parse.quote(model, safe="")
        query = {"timeout": f"{timeout_seconds:g}", "unit": target.unit, "version": target.version}
        query = {name: value for name, value in query.items() if value}
        answer = await self.admin("POST", path, body=body, query=query, wait=timeout_seconds)
        return self._read_object(answer)

    async def measure(
        self, model: str, request: BinaryRequest, *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        query = urllib.parse.urlencode({"unit": target.unit, "timeout": f"{timeout_seconds:g}"})
        path = urllib.parse.urlsplit(self._url(f"/v1/measure/{urllib.parse.quote(model, safe='')}")).path
        headers = {
            "Authorization": f"Bearer {self._address.admin_secret}",
            "Inference-Header-Content-Length": str(request.head_bytes),
        }
        connection = None
        try:
            # The calls of a measurement are many and short: what the client itself costs must not show.
            async with asyncio.timeout(ANSWER_SECONDS + timeout_seconds):
                connection = self._idle.pop() if self._idle else await self._open()
                status, answer = await connection.post(f"{path}?{query}", headers, request.body, most=MAX_ANSWER_BYTES)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            if connection is not None:
                connection.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._failure(error) from error
        self._idle.append(connection)
        if status >= 300:
            raise self._refusal(status, answer)
        return self._read_object(answer)

    async def logs(self, *, tail: int) -> list[str]:
        document = self._read_json(await self.admin("GET", "/v1/logs", query={"tail": str(tail)}))
        lines = document.get("lines", []) if isinstance(document, dict) else document
        return [line if isinstance(line, str) else json.dumps(line) for line in lines]

    async def metrics(self) -> Exposition:
        url = self._address.metrics_url.rstrip("/")
        url = url if url.endswith("/metrics") else f"{url}/metrics"
        body, content_type = await self._exchange("GET", url, headers={"Accept": _ACCEPT_METRICS})
        return Exposition(content_type=content_type, body=body)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await self._http.__aexit__(kind, error, trace)

    def _url(self, path: str) -> str:
        return self._address.admin_url.rstrip("/") + path

    async def admin(
        self, method: str, path: str, *, body: Any = None, query: dict[str, str] | None = None, wait: float = 0.0
    ) -> bytes:
        """Call the admin API and return the body of its answer, that after ``wait`` seconds may still come."""
        headers = {"Authorization": f"Bearer {self._address.admin_secret}"}
        content = None
        if body is not None:
            content = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        url = self._url(path)
        answer, _kind = await self._exchange(method, url, headers=headers, content=content, query=query, wait=wait)
        return answer

    async def _exchange(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str],
        content: bytes | None = None,
        query: dict[str, str] | None = None,
        wait: float = 0.0,
    ) -> tuple[bytes, str]:
        seconds = max(ANSWER_SECONDS + wait, 0.1)
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            # httpx2 counts from byte to byte; the outer limit stops a node that drips.
            async with (
                asyncio.timeout(seconds + CONNECT_SECONDS),
                self._http.stream(
                    method, url, headers=headers, content=content, params=query, timeout=timeout
                ) as response,
            ):
                answer = await self._read_bounded(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            raise self._failure(error) from error
        if response.status_code >= 300:
            raise self._refusal(response.status_code, answer)
        return answer, response.headers.get("content-type", "")

    async def _read_bounded(self, response: httpx2.Response) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                text = _("%(node)s sent more than %(limit)d bytes.") % {**self._words, "limit": MAX_ANSWER_BYTES}
                raise NodeClientError(NodeErrorCode.TOO_LARGE, text)
            parts.append(part)
        return b"".join(parts)

    async def _open(self) -> Connection:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Connection.open(self._address.admin_url, _trust(self._address))

    def _failure(self, error: Exception) -> NodeClientError:
        if isinstance(error, httpx2.TimeoutException | TimeoutError):
            return NodeClientError(NodeErrorCode.TIMEOUT, _("%(node)s did not answer in time.") % self._words)
        words = {**self._words, "reason": str(error) or type(error).__name__}
        return NodeClientError(NodeErrorCode.UNREACHABLE, _("%(node)s cannot be reached: %(reason)s") % words)

    def _refusal(self, status: int, body: bytes) -> NodeClientError:
        code = _BY_STATUS.get(status, NodeErrorCode.NODE_FAILED if status >= 500 else NodeErrorCode.PROTOCOL)
        text = body[:2000].decode("utf-8", "replace").strip()
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if isinstance(document, dict):
            text = str(document.get("error") or document.get("detail") or text)
        return NodeClientError(code, text or _("%(node)s answered %(status)d.") % {**self._words, "status": status})

    def _read_json(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            text = _("%(node)s sent an answer that is not JSON.") % self._words
            raise NodeClientError(NodeErrorCode.PROTOCOL, text) from error

    def _read_object(self, body: bytes) -> dict[str, Any]:
        document = self._read_json(body)
        if not isinstance(document, dict):
            raise NodeClientError(NodeErrorCode.PROTOCOL, _("%(node)s sent JSON that is no object.") % self._words)
        return document

    def _read_observed(self, body: bytes) -> Observed:
        try:
            return Observed.from_json(self._read_json(body))
        except ContractError as error:
            text = _("%(node)s speaks another control protocol: %(problem)s") % {
                **self._words,
                "problem": error.message,
            }
            raise NodeClientError(NodeErrorCode.PROTOCOL, text) from error


def connect(address: NodeAddress) -> FlotillaNodeClient:
    """Return a client of a Flotilla node; use it as an asynchronous context manager."""
    return FlotillaNodeClient(address)
