"""A modest, uneven client load over the v2 protocol, so that every chart moves."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np
import numpy.typing as npt

_DATATYPES = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64", np.dtype(object): "BYTES"}
_CLIENTS_PER_MODEL = 4
_WAVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """A served name and one row of input for it."""

    name: str
    row: dict[str, npt.NDArray[Any]]


def keep_busy(url: str, targets: list[Target], seconds: float | None, say: Callable[[str], None]) -> None:
    """Send requests until ``seconds`` have passed, or until Ctrl-C when None."""
    stop = threading.Event()
    counts = {"ok": 0, "failed": 0}
    threads = [
        threading.Thread(target=_client, args=(url, target, stop, counts, seed), daemon=True)
        for target in targets
        for seed in range(_CLIENTS_PER_MODEL)
    ]
    for thread in threads:
        thread.start()
    end = None if seconds is None else time.monotonic() + seconds
    try:
        while end is None or time.monotonic() < end:
            stop.wait(min(10.0, seconds or 10.0))
            say(f"{counts['ok']} answered, {counts['failed']} failed")
    except KeyboardInterrupt:
        pass
    stop.set()
    for thread in threads:
        thread.join(10)


def request_body(target: Target, rows: int) -> dict[str, Any]:
    """Return a v2 JSON request with ``rows`` copies of the row."""
    inputs = []
    for name, row in target.row.items():
        batch = np.repeat(row, rows, axis=0)
        inputs.append(
            {
                "name": name,
                "shape": list(batch.shape),
                "datatype": _DATATYPES[batch.dtype],
                "data": batch.reshape(-1).tolist(),
            }
        )
    return {"inputs": inputs}


def _client(url: str, target: Target, stop: threading.Event, counts: dict[str, int], seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    bodies = [request_body(target, rows) for rows in (1, 1, 1, 2, 4)]
    with httpx2.Client(base_url=url, timeout=10.0) as client:
        while not stop.is_set():
            try:
                answer = client.post(f"/v2/models/{target.name}/infer", json=draw.choice(bodies))
                counts["ok" if answer.status_code == 200 else "failed"] += 1
            except httpx2.HTTPError:
                counts["failed"] += 1
                stop.wait(1.0)
            # a slow wave, so that the charts have hills
            wave = 1.5 + math.sin(time.monotonic() / _WAVE_SECONDS * 2 * math.pi)
            stop.wait(draw.expovariate(4.0 * wave))
