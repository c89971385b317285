"""``flotilla node build-engine``: a TensorRT engine from an ONNX file, on a GPU of this machine."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving_node.backends.tensorrt.building.worker import Job, run
from serving_node.contract.engine_builds import BuildPlan, BuildProfile, InputBounds, check_plan
from serving_node.contract.errors import ContractError

_EXAMPLE = """
A profile is written as NAME=LEAST:BEST:LARGEST for each dynamic input, with commas between them:
  --profile 'ids=1x16:8x128:32x512,mask=1x16:8x128:32x512'
The elements of a shape tensor are bounded by NAME==LEAST:BEST:LARGEST. Types are those of the ONNX file.
"""


def main(arguments: Sequence[str], trt: Any = None) -> int:
    """Build, tell progress on standard error, and return the exit status. ``trt``: instead of the installed one."""
    given = _parser().parse_args(arguments)
    try:
        plan = BuildPlan(
            profiles=tuple(read_profile(text) for text in given.profile),
            max_batch_size=given.max_batch_size,
            best_batch_size=given.best_batch_size,
            workspace_bytes=given.workspace_mib << 20,
            optimization_level=given.optimization_level,
            version_compatible=given.version_compatible,
        )
        check_plan(plan)
    except ContractError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return 2
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        with tempfile.TemporaryDirectory() as folder:
            cache = given.timing_cache or Path(folder) / "timing.cache"
            job = Job(str(given.model), str(given.output), str(cache), plan, given.gpu)
            last: dict[str, Any] = {}
            run(job, lambda document: _tell(document, last), stopped, trt)
    finally:
        signal.signal(signal.SIGINT, before)
    if "reason" in last:
        sys.stderr.write(f"error: {last['reason']}\n")
        return 1
    sys.stdout.write(f"{given.output}\n")
    return 0


def read_profile(text: str) -> BuildProfile:
    """Return the profile that a text describes. Raises ContractError with one sentence."""
    return BuildProfile(tuple(_bounds(part) for part in text.split(",")))


def _bounds(text: str) -> InputBounds:
    name, _, three = text.rpartition("=")
    parts = three.split(":")
    try:
        least, best, most = ([int(size) for size in part.split("x") if size] for part in parts)
    except ValueError:
        raise ContractError(
            f"'{text}' is no bounds of an input: write NAME=LEAST:BEST:LARGEST, such as ids=1x16:8x128:32x512"
        ) from None
    return InputBounds(name.removesuffix("="), tuple(least), tuple(best), tuple(most), of_values=name.endswith("="))


def _tell(document: dict[str, Any], last: dict[str, Any]) -> None:
    last.clear()
    last.update(document)
    if "progress" in document:
        sys.stderr.write(f"{document['progress']:6.1%}  {document['phase']}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flotilla node build-engine",
        description="Build a TensorRT engine from an ONNX file for a GPU of this machine.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--output", type=Path, default=Path("model.plan"), help="file to write (%(default)s)")
    parser.add_argument("--profile", action="append", default=[], help="bounds of dynamic inputs; may be repeated")
    parser.add_argument("--max-batch-size", type=int, default=0, help="without profiles: largest first dimension")
    parser.add_argument("--best-batch-size", type=int, default=0, help="what it is tuned for; by default the largest")
    parser.add_argument("--workspace-mib", type=int, default=0, help="memory for tactics; by default what the GPU has")
    parser.add_argument("--optimization-level", type=int, default=3, help="0 fast build to 5 fast engine (%(default)s)")
    parser.add_argument("--version-compatible", action="store_true", help="also for later versions of TensorRT")
    parser.add_argument("--timing-cache", type=Path, help="file that later builds read measurements from")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU (%(default)s)")
    return parser
