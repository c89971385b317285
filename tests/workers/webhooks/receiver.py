"""Receivers that behave and misbehave, each on a port of its own of the loopback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Receiver:
    """Answers each request with ``answer``, byte for byte; ``requests`` are what came, head and body.

    ``drips``: the answer never ends.
    """

    answer: bytes = OK
    drips: bool = False
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def serve(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _peer = listening.accept()
                threading.Thread(target=self._talk, args=[connection], daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                lines = [stream.readline().decode().strip()]
                while line := stream.readline().decode().strip():
                    lines.append(line)
                headers = {name.lower(): value for name, _colon, value in (one.partition(": ") for one in lines[1:])}
                headers[":line"] = lines[0]
                body = stream.read(int(headers.get("content-length", 0)))
                self.requests.append((headers, body))
                connection.sendall(self.answer)
                while self.drips and not self.stopped.wait(0.05):
                    connection.sendall(b"x")


@contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    family = socket.AF_INET6 if ":" in receiver.host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.bind((receiver.host, 0))
        listening.listen()
        receiver.port = listening.getsockname()[1]
        thread = threading.Thread(target=receiver.serve, args=[listening], daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.stopped.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(30)
