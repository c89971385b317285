"""The process of one conversion: an order on standard input, one JSON object a line on the descriptor given.

``{"say": sentence}`` while it goes on, then ``{"report": ...}`` or ``{"error": sentence}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, memory_bytes: int, parent: int) -> int:
    """Convert and tell. Returns the exit status."""
    _bind(memory_bytes, parent)
    from conversion.errors import ConversionFailed, require

    with os.fdopen(descriptor, "w") as told:

        def tell(message: dict[str, Any]) -> None:
            told.write(json.dumps(message) + "\n")
            told.flush()

        try:
            require("numpy", "Converting", "flotilla[convert,onnx]")
            from conversion.convert import convert
            from conversion.order import Order

            report = convert(Order.from_json(json.load(sys.stdin)), lambda sentence: tell({"say": sentence}))
        except ConversionFailed as error:
            tell({"error": str(error)})
            return 1
        except MemoryError:
            tell({"error": f"The conversion needs more than {memory_bytes >> 20} MiB of memory."})
            return 1
        tell({"report": report.to_json()})
    return 0


def _bind(memory_bytes: int, parent: int) -> None:
    """Limit what the file's code can take, and end with the process that started this one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before this one could say so
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:4])))
