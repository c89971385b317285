"""Heads of requests that never end, against a real uvicorn."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from console.middleware.http_protocol import BoundedProtocol


class Impatient(BoundedProtocol):
    HEAD_SECONDS = 0.2
    HEAD_BYTES = 4096


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while scope["path"] != "/refused":
        event = await receive()
        body += event["body"]
        if not event.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(echo, http=Impatient, lifespan="off", log_level="critical"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    yield int(listener.getsockname()[1])
    server.should_exit = True
    thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes; fails after 30 seconds."""
    found = b""
    while piece := connection.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize("begin", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: a"])
def test_a_head_that_does_not_end_is_given_up(port: int, begin: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(begin)
        assert read_all(connection) == b""


def test_the_next_head_on_a_connection_is_bounded_too(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost:")
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 1


def test_headers_that_do_not_end_are_refused(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-More: yes\r\n" * 400)
        assert read_all(connection).startswith(b"HTTP/1.1 400")


def test_a_large_body_is_no_head(port: int) -> None:
    body = b"x" * 100_000
    with connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n" + body)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(body)


def test_requests_one_after_the_other_are_answered(port: int) -> None:
    with connect(port) as connection:
        for last in (b"", b"", b"Connection: close\r\n"):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + last + b"\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 3


def test_empty_lines_are_no_request(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n\r\n")
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 1


@pytest.mark.parametrize("size", [1000, 1_000_000])
@pytest.mark.parametrize("sent", [b"x", b"x" * 1000])
def test_a_body_that_nobody_waits_for_any_more_is_bounded(port: int, size: int, sent: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(b"PUT /refused HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(sent)  # this ends uvicorn's own timer
        assert read_all(connection) == b""


def test_the_rest_of_a_refused_body_and_the_next_request_are_understood(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"PUT /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"x" * 100_000 + b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345")
        assert b"content-length: 5" in connection.recv(65536)
