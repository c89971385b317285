"""Asks a model that answers once, over HTTP."""

from __future__ import annotations

import http.client
import json
import struct
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from .facts import Raw, facts_of, wanted_in

HTTP_PORT = 8000
MODEL = "/v2/models/model"
ANSWER_SECONDS = 60.0
MOST_REFUSALS = 3
MOST_LATENCIES = 20_000


def ask(method: str, path: str, body: bytes = b"", head: int = 0) -> tuple[int, int, bytes]:
    """Return status, length of the JSON part of the body (0: all of it), and body."""
    headers = {"Content-Type": "application/json"}
    if head:
        headers["Inference-Header-Content-Length"] = str(head)
    connection = http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        length = response.getheader("Inference-Header-Content-Length") or "0"
        return response.status, int(length), response.read()
    finally:
        connection.close()


class UnaryDoor:
    """One answer to each request."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request once; return its error, milliseconds, and facts of its outputs."""
        body = Path(request["file"]).read_bytes()
        began = time.perf_counter()
        try:
            status, head, answer = ask("POST", f"{MODEL}/infer", body, request["head"])
        except (OSError, http.client.HTTPException) as error:
            return {"error": f"no answer: {type(error).__name__} {error}", "milliseconds": 0.0, "outputs": []}
        taken = round((time.perf_counter() - began) * 1000, 3)
        document = json.loads(answer[: head or len(answer)])
        if status != 200:
            return {"error": str(document.get("error", f"status {status}")), "milliseconds": taken, "outputs": []}
        outputs = facts_of(_outputs(document["outputs"], answer[head:]), wanted_in(request))
        return {"error": "", "milliseconds": taken, "outputs": outputs}

    def profile(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Send the requests in turn, one at a time, until the time is up and all were sent as often.

        The first round only warms up.
        """
        connection = http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=ANSWER_SECONDS)
        bodies = [(Path(one["file"]).read_bytes(), one["head"]) for one in cell["requests"]]
        latencies: list[float] = []
        failures, refusal = 0, ""
        end = 0.0
        for sent, (body, length) in enumerate(cycle(bodies), 1):
            head = {"Content-Type": "application/json", "Inference-Header-Content-Length": str(length)}
            began = time.perf_counter()
            try:
                connection.request("POST", f"{MODEL}/infer", body, head)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                failures, refusal = failures + 1, f"no answer: {type(error).__name__} {error}"
                connection.close()
            else:
                if response.status != 200:
                    failures, refusal = failures + 1, answer[:500].decode(errors="replace")
                elif end:
                    latencies.append(round(time.perf_counter() - began, 7))
            if failures >= MOST_REFUSALS:
                break
            if sent % len(bodies) == 0:
                now = time.perf_counter()
                end = end or now + cell["seconds"]
                if now > end or len(latencies) >= MOST_LATENCIES:
                    break
        connection.close()
        return {"batch": cell["batch"], "latencies": latencies, "failures": failures, "refusal": refusal}


def _outputs(outputs: list[dict[str, Any]], binary: bytes) -> list[Raw]:
    found = []
    for output in outputs:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            data, binary = binary[:size], binary[size:]
        else:
            data = _listed(output["datatype"], output.get("data", []))
        found.append((output["name"], output["datatype"], output["shape"], data))
    return found


def _listed(datatype: str, data: Any) -> bytes:
    """Return elements that came as JSON, as they would have come in binary."""
    if datatype == "BYTES":
        texts = [str(one).encode() for one in np.ravel(np.asarray(data, dtype=object))]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if datatype == "BF16":
        return bytes((np.asarray(data, "<f4").view("<u4") >> 16).astype("<u2").tobytes())
    kinds = {"BOOL": "u1", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
    kind = kinds.get(datatype) or ("<u" if datatype.startswith("U") else "<i") + str(int(datatype.strip("UINT")) // 8)
    return np.asarray(data).astype(kind).tobytes()
