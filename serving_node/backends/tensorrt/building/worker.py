"""``python -m serving_node.backends.tensorrt.building.worker``: builds one engine and ends.

One line of JSON on standard input is the job; the end of that input is the wish to stop, so that no worker outlives
its node. Lines of JSON on standard output tell progress and, last, the outcome.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_node.backends.tensorrt.building.builder import build_engine
from serving_node.backends.tensorrt.cuda import CudaError, cudart
from serving_node.contract.engine_builds import BuildPlan
from serving_node.contract.errors import ErrorCode
from serving_node.contract.messages import Message
from serving_node.core.errors import InferenceError

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Job(Message):
    """What to build, and where to. Paths are of the node's own machine."""

    model: str
    engine: str
    timing_cache: str
    plan: BuildPlan
    gpu: int


def run(job: Job, tell: Callable[[dict[str, Any]], None], stopped: threading.Event, trt: Any = None) -> None:
    """Build, telling progress and, last, the outcome. ``stopped`` set: give up at TensorRT's next step."""
    lock = threading.Lock()
    last: tuple[int, str] = (-1, "")

    def told(fraction: float, phase: str) -> None:
        nonlocal last
        with lock:
            now = (int(fraction * 1000), phase)
            if now != last:
                last = now
                tell({"progress": round(fraction, 4), "phase": phase})

    try:
        if trt is None:
            trt = importlib.import_module("tensorrt")
            cudart().set_device(job.gpu)
        engine = build_engine(trt, Path(job.model), job.plan, Path(job.timing_cache), told, stopped.is_set)
        Path(job.engine).write_bytes(engine)
        tell({"done": True})
    except InferenceError as error:
        tell({"code": error.code.value, "reason": error.message})
    except (ImportError, CudaError) as error:
        tell({"code": ErrorCode.UNSUPPORTED.value, "reason": f"this node cannot build engines: {error}"})
    except Exception as error:
        tell({"code": ErrorCode.INTERNAL.value, "reason": f"the build failed: {type(error).__name__}: {error}"})


def main(trt: Any = None) -> None:
    """Read the job, build, end."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    # TensorRT and CUDA print to standard output; from here on that is standard error
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = Job.from_json(json.loads(sys.stdin.readline()))
    stopped = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stopped.set()

    def tell(document: dict[str, Any]) -> None:
        out.write(json.dumps(document) + "\n")
        out.flush()

    threading.Thread(target=watch, daemon=True).start()
    run(job, tell, stopped, trt)
    os._exit(0)  # the thread that watches still reads


if __name__ == "__main__":
    main()
