"""One kept-alive HTTP/1.1 connection that costs little for each call, so that a measurement measures the node.

Understands what the admin port of a node answers: a status, headers with a content length, a body; nothing else.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Self
from urllib.parse import urlsplit

MAX_HEAD_BYTES = 64 * 1024


class Connection:
    """A connection for one caller at a time. After an error it must be closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    @classmethod
    async def open(cls, url: str, trust: ssl.SSLContext | bool) -> Self:
        """Connect to the host of an address. Raises OSError; ssl.SSLError is one."""
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        context = (trust if isinstance(trust, ssl.SSLContext) else ssl.create_default_context()) if is_tls else None
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context, limit=MAX_HEAD_BYTES)
        return cls(reader, writer, parts.netloc)

    async def post(self, path: str, headers: dict[str, str], body: bytes, *, most: int) -> tuple[int, bytes]:
        """Send a request and return the status and the body of its answer.

        Raises:
            OSError: the connection ended, or the answer is not HTTP or has more than ``most`` bytes.
        """
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.writelines(["\r\n".join([*lines, "", ""]).encode("latin-1"), body])
        await self._writer.drain()
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            status, length = _read_head(head)
            if length > most:
                raise OSError(f"the answer has {length} bytes")
            return status, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._writer.close()


def _read_head(head: bytes) -> tuple[int, int]:
    """Return status and content length of an answer's head. Raises ValueError."""
    status_line, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_reason = status_line.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"no HTTP answer: {status_line[:80]}")
    fields = {name.strip().lower(): value.strip() for name, _colon, value in (line.partition(":") for line in lines)}
    if not fields.get("content-length", "").isdigit():
        raise ValueError("the answer does not say its length")
    return int(status), int(fields["content-length"])
