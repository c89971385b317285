"""Runs in the sandbox: starts a node with one model, asks it what it is told to, and answers on descriptor 3.

The order is a JSON file: ``{"load_seconds", "requests": [{"file", "head"}], "profile": [{"file", "head", "batch",
"seconds"}]}``. The answer is what ``workers.scratch.report`` reads. Nothing of Flotilla is imported here; the node is a
process of its own, as it is everywhere else.
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

import numpy as np

_PORT = 8000
_MODEL = "/v2/models/model"
_ANSWER = 3
_ANSWER_SECONDS = 60.0
_MOST_REFUSALS = 3
_MOST_LATENCIES = 20_000
_KINDS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8"}
_KINDS |= {"UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "BOOL": "u1"}
_FLAGS = (
    "--model-repository=/repository",
    "--http-address=127.0.0.1",
    f"--http-port={_PORT}",
    "--allow-grpc=false",
    "--allow-metrics=false",
    "--exit-on-error=false",
    "--strict-readiness=false",
)


def main(path: str) -> int:
    """Obey the order in the file. Returns the exit status."""
    order: dict[str, Any] = json.loads(Path(path).read_text())
    began = time.monotonic()
    node = subprocess.Popen([sys.executable, "-s", "-m", "serving_node", *_FLAGS], stdin=subprocess.DEVNULL)
    reason = _wait_loaded(node, began + order["load_seconds"])
    report: dict[str, Any] = {"reason": reason, "load_seconds": round(time.monotonic() - began, 3)}
    if not reason:
        report["config"] = json.loads(_ask("GET", f"{_MODEL}/config")[2])
        report["answers"] = [_answer(request) for request in order["requests"]]
        report["profile"] = [_profile(cell) for cell in order["profile"]]
    text = json.dumps(report).encode()
    while text:
        text = text[os.write(_ANSWER, text) :]
    return 0


def _ask(method: str, path: str, body: bytes = b"", head: int = 0) -> tuple[int, int, bytes]:
    """Return status, length of the JSON part of the body (0: all of it), and body."""
    headers = {"Content-Type": "application/json"}
    if head:
        headers["Inference-Header-Content-Length"] = str(head)
    connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=_ANSWER_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        length = response.getheader("Inference-Header-Content-Length") or "0"
        return response.status, int(length), response.read()
    finally:
        connection.close()


def _wait_loaded(node: subprocess.Popen[bytes], deadline: float) -> str:
    """Return why the model is not there, empty once it is."""
    while time.monotonic() < deadline:
        if node.poll() is not None:
            return f"the node ended with status {node.returncode}"
        try:
            if _ask("GET", f"{_MODEL}/ready")[0] == 200:
                return ""
            models = json.loads(_ask("POST", "/v2/repository/index", b"{}")[2])
        except (OSError, ValueError, http.client.HTTPException):
            models = []
        for model in models if isinstance(models, list) else ():
            if model.get("state") == "UNAVAILABLE" and model.get("reason"):
                return str(model["reason"])
        time.sleep(0.05)
    return "it was not loaded in time"


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    body = Path(request["file"]).read_bytes()
    began = time.perf_counter()
    try:
        status, head, answer = _ask("POST", f"{_MODEL}/infer", body, request["head"])
    except (OSError, http.client.HTTPException) as error:
        return {"error": f"no answer: {type(error).__name__} {error}", "milliseconds": 0.0, "outputs": []}
    taken = round((time.perf_counter() - began) * 1000, 3)
    document = json.loads(answer[: head or len(answer)])
    if status != 200:
        return {"error": str(document.get("error", f"status {status}")), "milliseconds": taken, "outputs": []}
    return {"error": "", "milliseconds": taken, "outputs": _facts(document["outputs"], answer[head:])}


def _facts(outputs: list[dict[str, Any]], binary: bytes) -> list[dict[str, Any]]:
    """Return name, type, shape and a few figures of each output."""
    found = []
    for output in outputs:
        size = output.get("parameters", {}).get("binary_data_size")
        facts = {"name": output["name"], "datatype": output["datatype"], "shape": output["shape"]}
        if size is not None:
            values, binary = _values(output["datatype"], binary[:size]), binary[size:]
        else:
            values = _listed(output.get("data", []))
        found.append({**facts, **_figures(values)})
    return found


def _values(datatype: str, data: bytes) -> Any:
    if datatype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, _KINDS[datatype]) if datatype in _KINDS else None


def _listed(data: Any) -> Any:
    try:
        return np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):  # texts
        return None


def _figures(values: Any) -> dict[str, Any]:
    if values is None:
        return {"nan": 0, "inf": 0, "least": None, "most": None}
    if values.dtype.kind != "f":
        ends = (float(values.min()), float(values.max())) if values.size else (None, None)
        return {"nan": 0, "inf": 0, "least": ends[0], "most": ends[1]}
    finite = values[np.isfinite(values)]
    ends = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    return {"nan": nan, "inf": inf, "least": ends[0], "most": ends[1]}


def _profile(cell: dict[str, Any]) -> dict[str, Any]:
    """Send the same request again and again, one at a time; the first one only warms up."""
    body = Path(cell["file"]).read_bytes()
    head = {"Content-Type": "application/json", "Inference-Header-Content-Length": str(cell["head"])}
    connection = http.client.HTTPConnection("127.0.0.1", _PORT, timeout=_ANSWER_SECONDS)
    latencies: list[float] = []
    failures, refusal = 0, ""
    end = 0.0
    while failures < _MOST_REFUSALS and len(latencies) < _MOST_LATENCIES:
        began = time.perf_counter()
        try:
            connection.request("POST", f"{_MODEL}/infer", body, head)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            failures, refusal = failures + 1, f"no answer: {type(error).__name__} {error}"
            connection.close()
            continue
        now = time.perf_counter()
        if response.status != 200:
            failures, refusal = failures + 1, answer[:500].decode(errors="replace")
        elif end:
            latencies.append(now - began)
        end = end or now + cell["seconds"]
        if now > end:
            break
    connection.close()
    return {"batch": cell["batch"], "latencies": latencies, "failures": failures, "refusal": refusal}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
