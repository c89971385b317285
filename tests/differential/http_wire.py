"""Raw HTTP: exactly these bytes go out, and everything that came back is seen."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any

from tests.differential.steps import Answer, Http, RawHttp

SECONDS = 20.0
# Headers that a client acts upon; the others say who serves and when.
_KEPT = ("content-type", "inference-header-content-length", "content-encoding", "accept-encoding", "connection")


def call(port: int, request: Http) -> Answer:
    """Send one request on a new connection and return its answer."""
    lines = [f"{request.method} {request.path} HTTP/1.1", "Host: localhost"]
    headers = dict(request.headers)
    names = {name.lower() for name in headers}
    if (request.body or request.method in ("POST", "PUT")) and not names & {"content-length", "transfer-encoding"}:
        headers["Content-Length"] = str(len(request.body))
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return _answers(port, (head + request.body,), 1, request.method)[0]


def call_raw(port: int, request: RawHttp) -> Answer:
    """Send bytes and return the answers as one."""
    answers = _answers(port, request.parts, request.answers, request.method)
    return answers[0] if request.answers == 1 else {"answers": answers}


def _answers(port: int, parts: tuple[bytes, ...], count: int, method: str) -> list[Answer]:
    answers: list[Answer] = []
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            source = _Peekable(connection)
            for _ in range(count):
                answers.append(_read(source, method))
        except (ConnectionError, http.client.HTTPException, TimeoutError) as failure:
            silent = isinstance(failure, TimeoutError)
            answers.append({"connection": "silent" if silent else "closed"})
    return answers


class _Peekable:
    """Gives all responses of one connection the same buffered reader."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self._unclosed = _NeverClosed(self._file)

    def makefile(self, *_: Any) -> Any:
        return self._unclosed


class _NeverClosed:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        pass


def _read(source: Any, method: str) -> Answer:
    response = http.client.HTTPResponse(source, method=method)
    response.begin()
    body = response.read()
    answer: Answer = {"status": response.status}
    headers = {name.lower(): value for name, value in response.getheaders()}
    # the reference labels its early errors text/plain, though all are JSON, and gives a type to bodies without a byte:
    # see differences.md, "`Content-Type` of errors"
    kept = [name for name in _KEPT if name != "content-type" or (response.status < 400 and body)]
    answer["headers"] = {name: headers[name] for name in kept if name in headers}
    answer.update(_content(body, headers))
    return answer


def _content(body: bytes, headers: Mapping[str, str]) -> Answer:
    encoding = headers.get("content-encoding")
    if encoding:
        import gzip
        import zlib

        body = gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body)
    length = headers.get("inference-header-content-length")
    if length is not None:
        return {"json": json.loads(body[: int(length)]), "binary": body[int(length) :].hex()}
    if not body:
        return {}
    try:
        return {"json": json.loads(body)}
    except ValueError:
        return {"text": body.decode("utf-8", "backslashreplace")}
