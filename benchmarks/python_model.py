"""A Python model in a process of its own: the node against a real Triton server over one repository.

Both run the same ``add_sub`` in their Python backends, loaded by perf_analyzer in turn. CPU microseconds per request
are of all processes of a server, its model's process included.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.models import write_theirs
from benchmarks.options import Options
from benchmarks.peers import compare, node_command, running

# The floor that the project holds itself to: 2.0 times at 16, 1.4 times at 1.
CONCURRENCY = (1, 16)


def run(options: Options) -> None:
    """Print one line per protocol and concurrency: A is Triton, B is the node."""
    assert options.oracle is not None
    if options.concurrency == Options().concurrency:
        options = replace(options, concurrency=CONCURRENCY)
    theirs, ours = options.port_base, options.port_base + 10
    with tempfile.TemporaryDirectory() as folder:
        write_theirs(Path(folder))
        triton = [options.oracle / "triton.sh", Path(folder), str(theirs)]
        with running(theirs, triton) as a, running(ours, node_command(Path(folder), ours)) as b:
            compare(options, (a.pid, theirs), (b.pid, ours), ["add_sub"])
