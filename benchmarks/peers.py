"""Servers that are measured: started as processes, waited for, loaded in turn by the reference's own client."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.options import Options


@contextlib.contextmanager
def running(port: int, command: Sequence[str | Path], seconds: float = 90) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server and wait until its HTTP ``port`` says that it is ready. Its output is shown when it fails."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            if not _becomes_ready(process, port, seconds):
                log.seek(0)
                sys.exit(f"{command[0]} is not ready on port {port}:\n{log.read().decode(errors='replace')[-2000:]}")
            yield process
        finally:
            process.terminate()
            process.wait(40)


def _becomes_ready(process: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        url = f"http://127.0.0.1:{port}/v2/health/ready"
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=1):
            return True
        time.sleep(0.2)
    return False


def node_command(repository: Path, port: int) -> list[str]:
    """Return the command of a node on ``port``, port + 1 and port + 2."""
    flags = [f"--{name}-port={port + offset}" for offset, name in enumerate(("http", "grpc", "metrics"))]
    flags += [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
    return [sys.executable, "-m", "serving_node", f"--model-repository={repository}", *flags]


def compare(options: Options, theirs: int, ours: int, models: Sequence[str]) -> None:
    """Print the ratios of two running servers; ``theirs`` and ``ours`` are HTTP ports, gRPC is one above."""
    assert options.oracle is not None
    rounds, window = (1, 1000) if options.quick else (options.rounds, 1500)
    for model in models:
        for protocol in options.protocols:
            offset = 1 if protocol == "grpc" else 0
            command = [sys.executable, str(options.oracle / "compare.py"), "-m", model, "-i", protocol]
            command += ["--a", f"127.0.0.1:{theirs + offset}", "--b", f"127.0.0.1:{ours + offset}"]
            command += ["--rounds", str(rounds), "--window-ms", str(window), "-c", *map(str, options.concurrency)]
            # on a shared machine few windows are stable: take those that there are
            subprocess.run([*command, "--", "-s", "900"], check=False)
