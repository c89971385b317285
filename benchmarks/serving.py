"""A whole node against a real Triton server with the same models, loaded by perf_analyzer in turn.

The node runs ``add_sub`` and ``mlp`` on ONNX Runtime and ``echo`` on its identity backend. The reference build has no
ONNX Runtime backend: its Python backend computes the same with numpy in a process of its own.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.models import SERVED, write_ours, write_theirs
from benchmarks.options import Options
from benchmarks.peers import compare, node_command, running


def run(options: Options) -> None:
    """Print one line per model, protocol and concurrency: A is Triton, B is the node."""
    assert options.oracle is not None
    theirs, ours = options.port_base, options.port_base + 10
    with tempfile.TemporaryDirectory() as folder:
        write_theirs(Path(folder, "theirs"))
        write_ours(Path(folder, "ours"))
        triton = [options.oracle / "triton.sh", Path(folder, "theirs"), str(theirs)]
        node = node_command(Path(folder, "ours"), ours)
        with running(theirs, triton) as a, running(ours, node) as b:
            compare(options, (a.pid, theirs), (b.pid, ours), SERVED)
