"""An HTTP/2 client of a few lines, for what no real client does: lie, flood, send 2 GiB without having them."""

from __future__ import annotations

import socket
import struct

from hpack import Decoder, Encoder

from serving_node.wire.http2.frames import PREFACE

Frame = tuple[int, int, int, bytes]  # type, flags, stream, payload
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class RawClient:
    """One connection. Windows are the server's; ``goaway`` is (code, text) once it came."""

    def __init__(self, port: int, *, settings: bytes = b"", receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))
        self.encoder, self.decoder = Encoder(), Decoder()
        self.window = self.stream_window = 65535
        self.largest_frame = 16384
        self.goaway: tuple[int, bytes] | None = None
        self._buffer = b""
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def headers(self, path: str = "/inference.GRPCInferenceService/ModelInfer", **extra: str) -> bytes:
        """Return a header block for a call."""
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")]
        fields += [("content-type", "application/grpc"), *((k.replace("_", "-"), v) for k, v in extra.items())]
        return bytes(self.encoder.encode(fields))

    def send(self, *frames: bytes) -> None:
        """Send frames; what the server has closed is not an error."""
        try:
            for part in frames:
                self.socket.sendall(part)
        except OSError:
            pass

    def read(self) -> list[Frame]:
        """Return the next frames, an empty list at the end of the connection."""
        frames: list[Frame] = []
        while not frames:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return frames
            if not data:
                return frames
            self._buffer += data
            while len(self._buffer) >= 9:
                size = int.from_bytes(self._buffer[:3], "big")
                if len(self._buffer) < 9 + size:
                    break
                kind, flags = self._buffer[3:5]
                stream = int.from_bytes(self._buffer[5:9], "big")
                frames.append((kind, flags, stream, self._buffer[9 : 9 + size]))
                self._buffer = self._buffer[9 + size :]
        for kind, flags, stream, payload in frames:
            self._note(kind, flags, stream, payload)
        return frames

    def until_closed(self) -> list[Frame]:
        """Return everything until the server closes."""
        frames: list[Frame] = []
        while more := self.read():
            frames += more
        return frames

    def _note(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            if stream:
                self.stream_window += increment
            else:
                self.window += increment
        elif kind == SETTINGS and not flags & 1:
            for key, value in struct.iter_unpack(">HI", payload):
                if key == 4:
                    self.stream_window += value - 65535
                elif key == 5:
                    self.largest_frame = value
            self.send(frame(SETTINGS, 1, 0))
        elif kind == GOAWAY:
            self.goaway = (int.from_bytes(payload[4:8], "big"), payload[8:])

    def send_data(self, stream: int, data: bytes | memoryview, *, end: bool = False) -> None:
        """Send data within the windows."""
        view = memoryview(data)
        while len(view):
            size = min(len(view), self.window, self.stream_window, self.largest_frame)
            if not size:
                assert self.read(), "the server has closed the connection"
                continue
            last = end and size == len(view)
            head = struct.pack(">I", size)[1:] + bytes([DATA, int(last)]) + struct.pack(">I", stream)
            self.socket.sendall(head)
            self.socket.sendall(view[:size])
            self.window -= size
            self.stream_window -= size
            view = view[size:]
