"""Large uploads whose connection is cut again and again, and whose server is killed: they end as the same bytes.

``FLOTILLA_CUT_UPLOAD_MB`` says how large (512; 10240 for what is promised). Cuts come after so many bytes; with
``FLOTILLA_CUT_UPLOAD_EVERY=30s`` by the clock, on a line of ``FLOTILLA_CUT_UPLOAD_RATE_MB`` a second (20), which makes
that mean something: 10 GB take more than eight minutes and are cut 17 times, each time within a chunk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flotilla.sdk import Flotilla, chunks, parts
from registry.models import Upload
from registry.services.uploads import staging_path
from tests.console.conftest import Cast, ConsoleProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MB = 1 << 20
SIZE = int(os.environ.get("FLOTILLA_CUT_UPLOAD_MB", "512")) * MB
# Not a multiple of the chunks, so that every cut is at another place of one.
BYTES_UNTIL_CUT = 39 * MB + 12345
SECONDS_UNTIL_CUT = float(os.environ.get("FLOTILLA_CUT_UPLOAD_EVERY", "0").removesuffix("s"))
BYTES_A_SECOND = int(os.environ.get("FLOTILLA_CUT_UPLOAD_RATE_MB", "20")) * MB
MOST_MEMORY = 200_000_000
LEAST_CUTS = int(SIZE / BYTES_A_SECOND / SECONDS_UNTIL_CUT) if SECONDS_UNTIL_CUT else SIZE // (60 * MB)


class CuttingProxy:
    """Passes bytes to a port and back; resets a connection on which so many bytes have gone to the server.

    By the clock: one on which bytes go when its time has come, and no more bytes pass than the line takes.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.cuts = 0
        self._left = BYTES_UNTIL_CUT
        self._cut_at = time.monotonic() + SECONDS_UNTIL_CUT
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.target)) as server,
        ):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    piece = source.recv(256 * 1024)
                    if not piece:
                        return
                    if source is client and self._is_cut(len(piece)):
                        # Half of it still arrives; then both sides see a reset, as when a cable is pulled.
                        server.sendall(piece[: len(piece) // 2])
                        for end in (client, server):
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                        return
                    (server if source is client else client).sendall(piece)
                    if source is client and SECONDS_UNTIL_CUT:
                        time.sleep(len(piece) / BYTES_A_SECOND)

    def _is_cut(self, count: int) -> bool:
        with self._lock:
            self._left -= count
            now = time.monotonic()
            # Small pieces are heads of requests: a cut comes within the bytes of a file.
            is_time = count > 16 * 1024 and now >= self._cut_at if SECONDS_UNTIL_CUT else self._left <= 0
            if is_time:
                self._left, self._cut_at = BYTES_UNTIL_CUT, now + SECONDS_UNTIL_CUT
                self.cuts += 1
            return is_time


def most_memory(pid: int) -> int:
    """Return the peak of what a process has held in memory, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_upload_over_many_cuts_and_a_killed_server_is_bit_exact(
    console_process: ConsoleProcess, shared_cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In chunks of 16 MB at most, and on one connection, however large the file is.
    monkeypatch.setattr(chunks, "MOST_BYTES", 16 * MB)
    monkeypatch.setattr(parts, "LEAST_BYTES", SIZE + 1)
    file = tmp_path / "weights.bin"
    expected = hashlib.sha256()
    with file.open("wb") as sink:
        for _start in range(0, SIZE, 4 * MB):
            piece = os.urandom(4 * MB)
            expected.update(piece)
            sink.write(piece)
    peaks: list[int] = []
    killed: list[int] = []

    def kill_once(_path: str, sent: int, _total: int) -> None:
        if sent > SIZE // 2 and not killed:
            killed.append(sent)
            peaks.append(most_memory(console_process.pid))
            console_process.kill()
            console_process.start()

    proxy = CuttingProxy(console_process.port)
    try:
        with Flotilla(proxy.url, shared_cast.token("bob"), project="wren") as client:
            client.upload("finch", {"weights.bin": file}, progress=kill_once)
    finally:
        proxy.close()
    peaks.append(most_memory(console_process.pid))
    upload: Any = Upload.objects.get()
    assert (upload.state, upload.offset) == ("received", SIZE)
    with staging_path(upload.pk).open("rb") as staged:
        assert hashlib.file_digest(staged, "sha256").digest() == expected.digest()
    assert upload.sha256 in (expected.hexdigest(), "")
    assert killed
    assert proxy.cuts >= LEAST_CUTS
    print(f"{proxy.cuts} cuts, at most {max(peaks) / 1e6:.0f} MB of memory")
    assert max(peaks) < MOST_MEMORY, f"{max(peaks) / 1e6:.0f} MB"
