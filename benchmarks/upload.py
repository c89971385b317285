"""Files pushed by the SDK to the real product over reading and hashing the same files here, in turn.

The product is ``flotilla up`` on its embedded servers, over loopback: sender, receiver and database share the
processors. What is pushed is new in every round, so that every byte is sent. A push ends when the version is submitted:
then all bytes are on the disk of the server with their digests checked.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks import upload_floor
from benchmarks.options import Options
from benchmarks.product import Product, product_running
from flotilla.sdk import Flotilla, OperationFailed

_MB = 1_000_000
_PIECE = 4 * _MB
_FLOOR_BYTES = 500 * _MB


def run(options: Options) -> None:
    """Print the ratio of the rates (1: pushing costs as much as hashing), and the peak memory of the web process.

    Below that, what the steps of an upload cost by themselves, and so the best ratio that these processors allow.
    """
    size = (256 if options.quick else 2000) * _MB
    rounds = 2 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="flotilla-bench-") as scratch:
        folder = Path(scratch)
        with product_running(options.port_base + 70, folder / "data") as product:
            for count in (1, 8):
                files = _write(folder / f"of-{count}", count, size // count)
                _compare(product, files, rounds)


def _compare(product: Product, files: Mapping[str, Path], rounds: int) -> None:
    size = sum(file.stat().st_size for file in files.values())
    hashed: list[float] = []
    pushed: list[float] = []
    cpu: dict[str, float] = dict.fromkeys(("hash", "client", "web"), 0.0)
    floor = upload_floor.measure(next(iter(files.values())), min(size // len(files), _FLOOR_BYTES))
    product.forget_peak("web")
    with Flotilla(product.url, product.token) as client:
        for _round in range(rounds):
            for file in files.values():
                _renew(file)
            start_cpu = time.process_time()
            hashed.append(_seconds_to_hash(files))
            start, before_cpu, web_cpu = time.perf_counter(), time.process_time(), product.cpu_seconds("web")
            _version, operation = client.upload("weights", files)
            pushed.append(time.perf_counter() - start)
            cpu["hash"] += before_cpu - start_cpu
            cpu["client"] += time.process_time() - before_cpu
            cpu["web"] += product.cpu_seconds("web") - web_cpu
            try:  # What the workers do with it must not disturb the next round.
                client.wait(operation, timeout_seconds=900)
            except OperationFailed as failed:
                print(f"  checks: {failed}")
    ratio = statistics.median(mine / theirs for mine, theirs in zip(hashed, pushed, strict=True))
    rates = " MB/s, ".join(
        f"{name} {size / statistics.median(taken) / _MB:.0f}" for name, taken in (("hash", hashed), ("push", pushed))
    )
    peak = product.peak_bytes("web") / _MB
    what = f"{len(files)} of {size // len(files) // _MB} MB"
    shares = ", ".join(f"{name} {seconds / rounds / size * 1e9:.2f}" for name, seconds in cpu.items())
    print(
        f"  {what:14} {rates} MB/s | push/hash {ratio:.2f} | web at most {peak:.0f} MB | CPU s/GB: {shares}", flush=True
    )
    print(f"  {'floor':14} {floor}", flush=True)


def _write(folder: Path, count: int, size: int) -> dict[str, Path]:
    """Write ``count`` files of ``size`` random bytes."""
    folder.mkdir()
    files = {f"weights-{number}.bin": folder / str(number) for number in range(count)}
    for file in files.values():
        with file.open("wb") as sink:
            for start in range(0, size, _PIECE):
                sink.write(os.urandom(min(_PIECE, size - start)))
    return files


def _renew(file: Path) -> None:
    """Make it other content, without writing all of it again."""
    with file.open("r+b") as sink:
        sink.write(os.urandom(64))


def _seconds_to_hash(files: Mapping[str, Path]) -> float:
    start = time.perf_counter()
    for file in files.values():
        with file.open("rb") as source:
            hashlib.file_digest(source, "sha256")
    return time.perf_counter() - start
