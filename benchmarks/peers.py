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

from benchmarks.cpu import CpuMeter
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


def compare(options: Options, theirs: tuple[int, int], ours: tuple[int, int], models: Sequence[str]) -> None:
    """Print the ratios of two running servers, given by process and HTTP port; gRPC is one port above."""
    for model in models:
        for protocol in options.protocols:
            for concurrency in options.concurrency:
                _compare_once(options, theirs, ours, model, protocol, concurrency)


def _compare_once(
    options: Options, theirs: tuple[int, int], ours: tuple[int, int], model: str, protocol: str, concurrency: int
) -> None:
    assert options.oracle is not None
    rounds, window = (1, 1000) if options.quick else (options.rounds, 1500)
    a, b = (f"127.0.0.1:{port + (protocol == 'grpc')}" for _, port in (theirs, ours))
    command = [sys.executable, str(options.oracle / "compare.py"), "-m", model, "-i", protocol, "--a", a, "--b", b]
    command += ["--rounds", str(rounds), "--window-ms", str(window), "-c", str(concurrency)]
    meters = [CpuMeter(pid, port, model) for pid, port in (theirs, ours)]
    # on a shared machine few windows are stable: take those that there are
    subprocess.run([*command, "--", "-s", "900"], check=False)
    one, other = (meter.microseconds_per_request() for meter in meters)
    print(f"    server CPU per request: A {one:.0f}us | B {other:.0f}us | B/A {other / one:.2f}", flush=True)
