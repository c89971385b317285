"""Starts a node with one model, asks it what the order says, and answers on descriptor 3.

The order is a JSON file: ``{"load_seconds", "requests": [request], "profile": [{"requests": [request], "batch",
"seconds"}]}`` with a request as ``{"file", "head", "expected"}``: body, length of the JSON before its tensors, and a
file with the outputs that are wanted, if there is one. The answer is what ``workers.scratch.report`` reads. The node is
a process of its own, as it is everywhere else.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .streams import StreamDoor
from .unary import HTTP_PORT, MODEL, UnaryDoor, ask

_ANSWER = 3
_GRPC_PORT = 8001
_FLAGS = (
    "--model-repository=/repository",
    "--http-address=127.0.0.1",
    f"--http-port={HTTP_PORT}",
    "--grpc-address=127.0.0.1",
    f"--grpc-port={_GRPC_PORT}",
    "--allow-metrics=false",
    "--exit-on-error=false",
    "--strict-readiness=false",
    # what was made outside, from requirements; nothing can be added here
    "--backend-config=python,environment-folder=/environments",
    "--backend-config=python,environment-timeout-seconds=5",
)


def main(path: str) -> int:
    """Obey the order in the file. Returns the exit status."""
    order: dict[str, Any] = json.loads(Path(path).read_text())
    began = time.monotonic()
    node = subprocess.Popen([sys.executable, "-s", "-m", "serving_node", *_FLAGS], stdin=subprocess.DEVNULL)
    reason = _wait_loaded(node, began + order["load_seconds"])
    report: dict[str, Any] = {"reason": reason, "load_seconds": round(time.monotonic() - began, 3)}
    if not reason:
        config = json.loads(ask("GET", f"{MODEL}/config")[2])
        is_decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        door = StreamDoor(_GRPC_PORT) if is_decoupled else UnaryDoor()
        report["config"] = config
        report["answers"] = [door.answer(request) for request in order["requests"]]
        report["profile"] = [door.profile(cell) for cell in order["profile"]]
    text = json.dumps(report).encode()
    while text:
        text = text[os.write(_ANSWER, text) :]
    return 0


def _wait_loaded(node: subprocess.Popen[bytes], deadline: float) -> str:
    """Return why the model is not there, empty once it is."""
    while time.monotonic() < deadline:
        if node.poll() is not None:
            return f"the node ended with status {node.returncode}"
        try:
            if ask("GET", f"{MODEL}/ready")[0] == 200:
                return ""
            models = json.loads(ask("POST", "/v2/repository/index", b"{}")[2])
        except (OSError, ValueError, http.client.HTTPException):
            models = []
        for model in models if isinstance(models, list) else ():
            if model.get("state") == "UNAVAILABLE" and model.get("reason"):
                return str(model["reason"])
        time.sleep(0.05)
    return "it was not loaded in time"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
