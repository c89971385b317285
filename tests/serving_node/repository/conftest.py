"""A control plane's blob endpoint on loopback, with faults on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class BlobServer:
    """``contents`` by SHA-256; ``requests`` are (path, range header, authorization header) in order."""

    url: str = ""
    token: str = "node-token"
    contents: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    # Faults, used up one by one.
    cut_after: list[int] = field(default_factory=list)
    corrupt: int = 0
    statuses: list[int] = field(default_factory=list)
    redirect_to: str = ""
    ignore_ranges: bool = False

    def add(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return digest


class Handler(BaseHTTPRequestHandler):
    state: BlobServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        state = self.state
        authorization = self.headers.get("Authorization")
        state.requests.append((self.path, self.headers.get("Range"), authorization))
        content = state.contents.get(self.path.rsplit("/", 1)[-1])
        if state.statuses:
            self._empty(state.statuses.pop(0))
        elif state.redirect_to:
            self._empty(307, ("Location", state.redirect_to + self.path))
        elif state.token and authorization != f"Bearer {state.token}":
            self._empty(401)
        elif content is None:
            self._empty(404)
        else:
            self._send(content)

    def _send(self, content: bytes) -> None:
        state = self.state
        if state.corrupt:
            state.corrupt -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = 0
        asked = self.headers.get("Range")
        if asked and not state.ignore_ranges:
            start = int(asked.removeprefix("bytes=").split("-")[0])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + state.cut_after.pop(0) if state.cut_after else len(content)
        self.wfile.write(content[start:end])
        if end < len(content):
            self.close_connection = True

    def _empty(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


def serve(state: BlobServer) -> Iterator[BlobServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"state": state}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def blob_server() -> Iterator[BlobServer]:
    yield from serve(BlobServer())


@pytest.fixture
def other_host() -> Iterator[BlobServer]:
    """An object store on another origin, which takes no identity."""
    yield from serve(BlobServer(token=""))
