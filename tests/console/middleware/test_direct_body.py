"""Bodies that are read from the socket, against a real uvicorn: nothing lost, nothing of the next request taken."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
import uvloop

from console.middleware.direct_body import EXTENSION, ClientLeft, announced_length
from console.middleware.http_protocol import BoundedProtocol
from console.middleware.pace import Pace, TooSlow
from flotilla import certificates

BODY = os.urandom(3_000_000)
ended: list[tuple[str, int]] = []
left = threading.Event()
# Of each request, whether its body came from the socket.
direct: list[bool] = []


@dataclass(frozen=True)
class Address:
    """Where a server listens, and whom to trust there: nobody where it speaks no TLS."""

    port: int
    trust: ssl.SSLContext | None


async def digest(scope: Any, receive: Any, send: Any) -> None:
    """Answer the SHA-256 of the body; ``/half`` stops in the middle; some others wait a moment only."""
    now = asyncio.get_running_loop().time()
    pace = {
        "/idle": Pace(1, 0.2, now + 60),
        "/slow": Pace(10_000_000, 0.2, now + 60),
        "/late": Pace(0, 0.05, now + 0.5),
    }.get(scope["path"], Pace(1, 30, now + 600))
    offered = scope.get("extensions", {}).get(EXTENSION)
    body = offered() if offered else None
    direct.append(body is not None)
    found, buffer = hashlib.sha256(), memoryview(bytearray(700_000))
    seen, status = 0, 200
    try:
        while body is not None and (count := await body.fill(buffer, pace)):
            found.update(buffer[:count])
            seen += count
            if scope["path"] == "/half":
                break
        while body is None:
            event = await receive()
            found.update(event["body"])
            if not event.get("more_body"):
                break
    except (ClientLeft, TimeoutError) as error:
        status = 408
        ended.append((error.code if isinstance(error, TooSlow) else type(error).__name__, seen))
        left.set()
    finally:
        if body is not None:
            body.close()
    text = found.hexdigest().encode()
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@pytest.fixture(scope="module", params=["asyncio", "uvloop", "tls"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A server as it is behind a proxy, on each of the loops, and one that ends TLS itself."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(digest, http=BoundedProtocol, lifespan="off", log_level="critical")
    trust = None
    if request.param == "tls":
        folder = tmp_path_factory.mktemp("tls")
        certificates.main([str(folder), "localhost"])
        config.ssl_certfile, config.ssl_keyfile = str(folder / "localhost.pem"), str(folder / "localhost.key")
        trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    server = uvicorn.Server(config)
    loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def serve() -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=serve)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    yield Address(int(listener.getsockname()[1]), trust)
    server.should_exit = True
    thread.join()


@pytest.fixture
def connection(address: Address) -> Iterator[socket.socket]:
    ended.clear()
    left.clear()
    direct.clear()
    with socket.create_connection(("127.0.0.1", address.port), timeout=30) as found:
        if address.trust is None:
            yield found
        else:
            with address.trust.wrap_socket(found, server_hostname="localhost") as wrapped:
                yield wrapped


def head(path: str = "/", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()


def answer(connection: socket.socket) -> tuple[int, str]:
    """Read one answer and no byte more."""
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        text += connection.recv(1)
    length = int(text.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return int(text.split()[1]), body.decode()


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("size", [65_537, 700_000, 700_001, 1_400_000, 3_000_000])
def test_body_arrives_whole_and_the_next_request_is_understood(connection: socket.socket, size: int) -> None:
    body = BODY[:size]
    for _turn in range(3):
        connection.sendall(head(Content_Length=str(size)) + body)
        assert answer(connection) == (200, sha256(body))
    if size > 700_000:  # The server may have had all of a shorter one before it was asked.
        assert direct == [True] * 3


def test_requests_in_one_piece_keep_their_own_bytes(connection: socket.socket) -> None:
    sizes = (100_000, 5, 2_000_000, 0, 70_000)
    requests = b"".join(head(Content_Length=str(size)) + BODY[:size] for size in sizes)
    sending = threading.Thread(target=connection.sendall, args=(requests,))
    sending.start()
    assert [answer(connection) for _size in sizes] == [(200, sha256(BODY[:size])) for size in sizes]
    sending.join()


def test_body_of_unknown_length_comes_the_old_way(connection: socket.socket) -> None:
    connection.sendall(head(Transfer_Encoding="chunked") + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n")
    assert answer(connection) == (200, sha256(BODY))
    assert direct == [False]


def test_client_that_waits_to_be_asked_is_asked(connection: socket.socket) -> None:
    connection.sendall(head(Content_Length=str(len(BODY)), Expect="100-continue"))
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(BODY)
    assert answer(connection) == (200, sha256(BODY))


def test_rest_that_nobody_wants_is_dropped(connection: socket.socket) -> None:
    connection.sendall(head("/half", Content_Length=str(len(BODY))) + BODY)
    assert answer(connection) == (200, sha256(BODY[:700_000]))
    connection.sendall(head(Content_Length="5") + b"12345")
    assert answer(connection) == (200, sha256(b"12345"))


def test_what_arrived_before_the_client_left_is_handed_out_first(connection: socket.socket) -> None:
    connection.sendall(head(Content_Length=str(len(BODY))) + BODY[:1_000_000])
    connection.close()
    assert left.wait(30)
    # Under TLS, what was not yet decrypted when the connection broke off is gone.
    [(why, seen)] = ended
    assert why == "ClientLeft" and (seen == 1_000_000 or isinstance(connection, ssl.SSLSocket))


def test_silence_ends_it_and_what_came_before_is_handed_out_first(connection: socket.socket) -> None:
    connection.sendall(head("/idle", Content_Length=str(len(BODY))) + BODY[:1_000_000])
    assert answer(connection)[0] == 408
    assert ended == [("idle", 1_000_000)]


@pytest.mark.parametrize("path", ["/slow", "/late"])
def test_dripping_ends_it_and_what_came_before_is_handed_out_first(connection: socket.socket, path: str) -> None:
    """The drip goes on until the answer comes: never a whole window without a byte."""
    connection.sendall(head(path, Content_Length=str(len(BODY))))
    connection.settimeout(0.01)
    sent, answered = 0, b""
    while not answered:
        sent += connection.send(BODY[sent : sent + 1])
        with contextlib.suppress(TimeoutError):
            answered = connection.recv(100)
    assert answered.startswith(b"HTTP/1.1 408 ")
    [(code, seen)] = ended
    assert code == "too_slow" and 0 < seen <= sent


@pytest.mark.parametrize(
    ("headers", "length"),
    [
        ({}, 0),
        ({b"content-length": b"12"}, 12),
        ({b"content-length": b"x"}, 0),
        ({b"content-length": b"12", b"transfer-encoding": b"chunked"}, 0),
    ],
)
def test_announced_length(headers: dict[bytes, bytes], length: int) -> None:
    assert announced_length(list(headers.items())) == length
