"""What a node's memory grows by while a small model is loaded, asked once and unloaded, thousands of times.

Three hosts: threads of the node (ONNX Runtime), worker processes (the same model), and a process of a Python model.
Descriptors, threads and processes are counted too. None of them must grow.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.models import config, save_add_sub, write_theirs
from benchmarks.options import Options
from benchmarks.peers import node_command, running

_SAMPLES = 10
_MIB = 1024 * 1024
# Growth that an allocator's untidiness explains; more than this and 64 bytes a cycle beside it is a leak.
_NOISE_BYTES = 2 * _MIB
_LIMIT_BYTES_PER_CYCLE = 64.0
_HOST = 'parameters { key: "flotilla.host" value { string_value: "process" } }'
_BODY = json.dumps(
    {"inputs": [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [1, 16], "data": [0.5] * 16} for i in range(2)]}
)


@dataclass(frozen=True, slots=True)
class Cycled:
    """A model and how often it comes and goes; ``quick`` times for a look."""

    name: str
    what: str
    cycles: int
    quick: int


_MODELS = (
    Cycled("add_sub", "ONNX Runtime in threads", 10_000, 300),
    Cycled("hosted", "ONNX Runtime in a worker process", 60, 20),
    Cycled("python", "a Python model in its process", 60, 20),
)


class Node:
    """A running node without models, asked over one connection."""

    def __init__(self, process: psutil.Process, port: int) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def cycle(self, model: str) -> None:
        """Load a model, let it answer once, and unload it."""
        self._post(f"/v2/repository/models/{model}/load")
        self._post(f"/v2/models/{model}/infer", _BODY)
        self._post(f"/v2/repository/models/{model}/unload")

    def idle_size(self) -> tuple[int, int, int]:
        """Return resident bytes, and how many descriptors and threads there are, when no worker is left."""
        deadline = time.monotonic() + 30
        while any(map(_is_worker, self._process.children())):
            if time.monotonic() > deadline:
                sys.exit("  a worker process is left")
            time.sleep(0.01)
        return self._process.memory_info().rss, self._process.num_fds(), self._process.num_threads()

    def _post(self, path: str, body: str = "") -> None:
        self._connection.request("POST", path, body)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"  {path}: {answer.status} {text.decode(errors='replace')}")


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "stub.py" in " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return False


def _write(repository: Path) -> None:
    for name, more in (("add_sub", ""), ("hosted", _HOST)):
        save_add_sub(repository / name / "1" / "model.onnx")
        text = config("add_sub", "onnxruntime").replace('"add_sub"', f'"{name}"')
        (repository / name / "config.pbtxt").write_text(f"{text}\n{more}")
    with tempfile.TemporaryDirectory() as folder:
        write_theirs(Path(folder))
        version = repository / "python" / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(Path(folder, "add_sub", "1", "model.py").read_text())
    text = config("add_sub", "python").replace('"add_sub"', '"python"')
    (repository / "python" / "config.pbtxt").write_text(text)


def _run(node: Node, model: Cycled, cycles: int) -> bool:
    """Print the sizes after each tenth; return whether they stay."""
    sizes: list[tuple[int, int, int]] = []
    began = time.monotonic()
    for number in range(cycles):
        node.cycle(model.name)
        if (number + 1) % (cycles // _SAMPLES) == 0:
            sizes.append(node.idle_size())
    milliseconds = (time.monotonic() - began) / cycles * 1000
    growth, counted = sizes[-1][0] - sizes[0][0], cycles - cycles // _SAMPLES
    print(f"  {model.what}: {cycles} cycles of {milliseconds:.1f} ms")
    print(f"    resident MiB after each tenth: {' '.join(f'{size[0] / _MIB:.1f}' for size in sizes)}")
    print(f"    growth over the last {counted}: {growth / _MIB:.2f} MiB, {growth / counted:.1f} bytes a cycle;", end="")
    print(f" descriptors {sizes[0][1]} -> {sizes[-1][1]}, threads {sizes[0][2]} -> {sizes[-1][2]}", flush=True)
    more_descriptors, more_threads = (sizes[-1][place] - sizes[0][place] for place in (1, 2))
    is_flat = growth <= _NOISE_BYTES + _LIMIT_BYTES_PER_CYCLE * counted
    # threads of pools are made as they are needed; some descriptors wait for the garbage collector
    return is_flat and more_descriptors <= 32 and more_threads <= 32


def run(options: Options) -> None:
    """Cycle each model; end with status 1 when something grows."""
    port = options.port_base + 30
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder, "models")
        _write(repository)
        command = [*node_command(repository, port), "--model-control-mode=explicit", "--log-info=false"]
        with running(port, command) as process:
            node = Node(psutil.Process(process.pid), port)
            grown = [
                model.what for model in _MODELS if not _run(node, model, model.quick if options.quick else model.cycles)
            ]
    if grown:
        sys.exit(f"  it grows: {', '.join(grown)}")
