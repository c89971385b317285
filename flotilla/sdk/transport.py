"""HTTP to the console: bearer token, problem+json errors, bounded retries of what may safely be repeated."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx2

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Too many streams, of this caller or of all.
_NO_ROOM = frozenset({429, 503})
# A stream says something every 15 seconds; after twice that long its connection is dead.
_SILENT_SECONDS = 35.0
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})
# What is refused as too much was not done, so it may be sent again, whatever it is; for so long in all.
_TOO_MANY = 429
_PATIENCE_SECONDS = 150.0
_TRANSIENT = frozenset({502, 503, 504})


class ApiError(Exception):
    """The console refused or failed. ``code`` is stable; ``errors`` lists problems by field.

    ``request_id`` is what to look for in the console's log; ``document`` is the whole problem document.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: list[dict[str, str]] | None = None,
        *,
        request_id: str = "",
        document: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.request_id = request_id
        self.document = document or {}
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []

    def __str__(self) -> str:
        lines = [self.detail, *(f"  {problem.get('field')}: {problem.get('message')}" for problem in self.errors)]
        return "\n".join(lines)


class Transport:
    """Sends requests below ``<url>/api/v1/``. Close it when done."""

    def __init__(self, url: str, token: str, *, seconds: float | None = None) -> None:
        """``seconds``: for callers who rather have no answer than wait; nothing is sent again then."""
        headers = {"User-Agent": "flotilla-sdk", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._origin = url
        self._client = httpx2.Client(base_url=f"{url}/api/v1/", headers=headers, timeout=_TIMEOUT)
        self._pauses = _RETRY_PAUSES_SECONDS if seconds is None else ()
        if seconds is not None:
            self._client.timeout = httpx2.Timeout(seconds / 2)  # half to connect, half to answer

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> httpx2.Response:
        """Send and return a response below 400. ``path`` is below ``/api/v1/``, or absolute as in a Location header.

        ``content`` in pieces may be asked for again; its length is in ``headers``.

        ``once``: the write carries an Idempotency-Key, so that it may be sent again when the answer got lost, and
        still happens once. Not for addresses whose answers hold secrets: these are not kept.

        Raises:
            ApiError: the console answered with an error, or could not be reached (code ``unreachable``).
        """
        # the client would put an absolute path below its base address
        target = f"{self._origin}{path}" if path.startswith("/") else path
        headers = {"Idempotency-Key": uuid.uuid4().hex, **(headers or {})} if once else dict(headers or {})
        deadline = time.monotonic() + _PATIENCE_SECONDS
        pauses = iter(self._pauses if once or method in _REPEATABLE else ())
        while True:
            try:
                response = self._client.request(
                    method,
                    target,
                    json=json,
                    content=content,
                    headers=headers,
                    params=params or None,
                )
            except httpx2.HTTPError as error:
                problem = ApiError(0, "unreachable", f"Cannot reach {self._client.base_url}: {error}")
            else:
                if response.status_code < 400:
                    return response
                problem = _problem(response)
            pause = next(pauses, None) if problem.status in (0, *_TRANSIENT) else None
            if problem.status == _TOO_MANY:
                pause = _asked_pause(response)
            if pause is None or time.monotonic() + pause > deadline:
                raise problem
            time.sleep(pause)

    def change(self, method: str, path: str, *, json: Any = None) -> httpx2.Response:
        """Change (PATCH, PUT) or delete what is at ``path`` now; of two that do so at once, one is refused (412).

        Raises:
            ApiError: as ``send``.
        """
        seen = self.send("GET", path).headers["ETag"]
        return self.send(method, path, json=json, headers={"If-Match": seen})

    def lines(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Yield the lines of an answer of any length, each with its line end, as they arrive.

        Raises:
            ApiError: refused, not reached, or cut off in the middle (code ``unreachable``).
        """
        try:
            with self._client.stream("GET", path, params=params or None) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _problem(response)
                rest = b""
                for piece in response.iter_bytes():
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        yield line + b"\n"
                if rest:
                    yield rest
        except httpx2.HTTPError as error:
            raise ApiError(0, "unreachable", f"The answer of {self._client.base_url} ended early: {error}") from None

    def pieces(self, path: str, params: Mapping[str, str], *, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes of an answer from ``start`` on as they arrive, from wherever the console sends for them.

        Raises:
            ApiError: refused, or not reached or cut off in the middle (code ``unreachable``).
        """
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            # Another host, as an object store is, gets no token: the client drops it on the way.
            with self._client.stream("GET", path, params=params, headers=headers, follow_redirects=True) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _problem(response)
                if response.status_code != (206 if start else 200):
                    raise ApiError(0, "no_ranges", "The server does not send the rest of a file that was cut off.")
                yield from response.iter_bytes()
        except httpx2.HTTPError as error:
            raise ApiError(0, "unreachable", f"The answer of {self._client.base_url} ended early: {error}") from None

    def events(self, path: str, params: Mapping[str, str], deadline: float | None = None) -> Iterator[str]:
        """Yield an empty text at once and after each reconnection, then every block of a stream of server-sent events.

        ``path`` is absolute. Connections that end are made again, until the monotonic ``deadline``. While the server
        has no room for one more stream, the empty text comes as often as it says that one may ask again.

        Raises:
            ApiError: the console refuses.
        """
        pauses = iter(_RETRY_PAUSES_SECONDS)
        while deadline is None or time.monotonic() < deadline:
            left = _SILENT_SECONDS if deadline is None else min(_SILENT_SECONDS, deadline - time.monotonic())
            try:
                with self._client.stream(
                    "GET", f"{self._origin}{path}", params=params, timeout=httpx2.Timeout(left, connect=10.0)
                ) as answer:
                    if answer.status_code >= 400 and answer.status_code not in _NO_ROOM:
                        answer.read()
                        raise _problem(answer)
                    is_open = answer.status_code < 400
                    pauses = iter(_RETRY_PAUSES_SECONDS if is_open else [_asked_pause(answer)])
                    yield ""
                    for line in answer.iter_lines() if is_open else ():
                        if deadline is not None and time.monotonic() >= deadline:
                            return
                        if line.startswith("data:"):
                            yield line[5:].strip()
            except httpx2.HTTPError:
                if deadline is not None and time.monotonic() >= deadline:
                    return
            pause = next(pauses, _RETRY_PAUSES_SECONDS[-1])
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))

    def pages(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page after page."""
        document = self.send("GET", path, params=params).json()
        while True:
            yield from document["results"]
            if not document.get("next"):
                return
            document = self.send("GET", document["next"]).json()


def _asked_pause(response: httpx2.Response) -> float:
    """Return the seconds that the console asks to wait, 1 when it does not say."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1.0


def _problem(response: httpx2.Response) -> ApiError:
    try:
        document = response.json()
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    detail = document.get("detail") or document.get("title") or f"HTTP {response.status_code}"
    return ApiError(
        response.status_code,
        str(document.get("code", "http_error")),
        str(detail),
        document.get("errors") or [],
        request_id=str(document.get("request_id") or response.headers.get("X-Request-ID", "")),
        document=document,
    )
