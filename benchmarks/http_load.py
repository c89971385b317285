"""A client that costs little: keeps one prepared request in flight on each of its connections.

``python -m benchmarks.http_load PORT PATH --header-bytes N --body FILE --connections C --seconds S`` prints how many
answers came, as JSON. Every answer must be 200 and as long as the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import cast

import uvloop


class _Connection(asyncio.Protocol):
    def __init__(self, request: bytes, end: float, done: asyncio.Future[int]) -> None:
        self._request = request
        self._end = end
        self._done = done
        self._answers = 0
        self._length = 0
        self._received = 0
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._received and not data.startswith(b"HTTP/1.1 200 "):
            self._fail(data)
            return
        self._received += len(data)
        if not self._length:
            self._head += data
            head, found, _ = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self._length = len(head) + 4 + int(lengths[0].partition(b":")[2])
        if self._received < self._length:
            return
        if self._received > self._length:
            self._fail(data)
            return
        self._answers += 1
        self._received = 0
        if time.perf_counter() < self._end:
            self._transport.write(self._request)
        else:
            self._transport.close()
            self._done.set_result(self._answers)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server closed the connection"))

    def _fail(self, data: bytes) -> None:
        self._transport.close()
        if not self._done.done():
            self._done.set_exception(ValueError(f"an unexpected answer: {data[:500]!r}"))


async def _load(port: int, request: bytes, connections: int, seconds: float) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    counts = [loop.create_future() for _ in range(connections)]
    for count in counts:
        await loop.create_connection(lambda c=count: _Connection(request, begin + seconds, c), "127.0.0.1", port)
    answers = sum(await asyncio.gather(*counts))
    return answers, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--header-bytes", type=int, required=True, help="length of the JSON in front of the tensors")
    parser.add_argument("--body", type=Path, required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    body = given.body.read_bytes()
    head = (
        f"POST {given.path} HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: {given.header_bytes}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answers, seconds = uvloop.run(_load(given.port, head.encode() + body, given.connections, given.seconds))
    print(json.dumps({"answers": answers, "seconds": seconds}))


if __name__ == "__main__":
    main()
