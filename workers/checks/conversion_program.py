"""Runs in the sandbox: converts one file to ONNX, and answers with the report and the new file on descriptor 3.

``python conversion_program.py SOURCE MEMORY_BYTES SECONDS``. The answer is a line of JSON, ``{"report", "size"}`` or
``{"error"}``, and then the bytes of the file.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from conversion.errors import ConversionFailed
from conversion.order import Order
from conversion.process import Limits, run

_ANSWER = 3
_TARGET = Path("/tmp/converted.onnx")  # noqa: S108  the sandbox's own


def main(source: str, memory_bytes: int, seconds: float) -> int:
    """Convert and answer. Returns the exit status."""
    with os.fdopen(_ANSWER, "wb") as answer:
        try:
            # Nobody trusts the file: that is what the sandbox is for.
            order = Order(source, str(_TARGET), allow_code=True)
            report = run(order, Limits(seconds, memory_bytes), lambda sentence: print(sentence, flush=True))
        except ConversionFailed as error:
            answer.write(json.dumps({"error": str(error)}).encode() + b"\n")
            return 0
        size = _TARGET.stat().st_size if _TARGET.exists() else 0
        answer.write(json.dumps({"report": report.to_json(), "size": size}).encode() + b"\n")
        if size:
            with _TARGET.open("rb") as file:
                shutil.copyfileobj(file, answer)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
