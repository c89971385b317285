"""Plays a case on a running server and returns its answers."""

from __future__ import annotations

import contextlib
import shutil
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker, shared_memory
from typing import Any

from tests.differential import grpc_wire, http_wire, views
from tests.differential.servers import Server
from tests.differential.steps import (
    Answer,
    Case,
    Grpc,
    Http,
    Metrics,
    RawHttp,
    Region,
    Remove,
    Step,
    Stream,
    Together,
    Until,
    Write,
)

_SETTLE_SECONDS = 3.0
_STATE_SECONDS = 30.0


class Player:
    """One server and what was loaded on it. ``expected`` answers end the waiting of steps that settle."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loaded: set[str] = set()
        self._channel = grpc_wire.channel(server.port + 1)
        self._regions: dict[str, shared_memory.SharedMemory] = {}

    def close(self) -> None:
        """Close what the cases opened."""
        self._channel.close()

    def play(self, case: Case, expected: list[Answer] | None = None) -> list[Answer]:
        """Return the answers of the case's calls in order; ``expected``: those that settling steps wait for."""
        self._load(case)
        answers: list[Answer] = []
        try:
            for step in case.steps:
                wanted = expected[len(answers)] if expected is not None and len(answers) < len(expected) else None
                answer = self._answer(step, wanted)
                if answer is not None:
                    answers.append(answer)
        finally:
            self._free_regions()
        return answers

    def _load(self, case: Case) -> None:
        if case.profile not in ("explicit", "caching", "limited"):
            return
        for model in case.models:
            if case.fresh and model in self._loaded:
                http_wire.call(self._server.port, Http("POST", f"/v2/repository/models/{model}/unload"))
                self._until(Until(model, "UNAVAILABLE"))
            if case.fresh or model not in self._loaded:
                answer = http_wire.call(self._server.port, Http("POST", f"/v2/repository/models/{model}/load"))
                assert answer.get("status") == 200, f"{model} does not load: {answer}"
            self._loaded.add(model)

    def _answer(self, step: Step, expected: Answer | None) -> Answer | None:
        if isinstance(step, Write | Remove | Region | Until):
            return self._do(step)
        if isinstance(step, Together):
            with ThreadPoolExecutor(len(step.calls)) as pool:
                pending = []
                for call in step.calls:
                    pending.append(pool.submit(self._call, call))
                    time.sleep(step.apart)
                return {"together": [future.result() for future in pending]}
        if not getattr(step, "eventually", False):
            return self._call(step)
        return self._settle(lambda: self._call(step), expected)

    def _settle(self, ask: Callable[[], Answer], expected: Answer | None) -> Answer:
        if expected is None:
            time.sleep(0.5)
            return ask()
        end = time.monotonic() + _SETTLE_SECONDS
        while (answer := ask()) != expected and time.monotonic() < end:
            time.sleep(0.05)
        return answer

    def _call(self, step: Any) -> Answer:
        port = self._server.port
        if isinstance(step, Http):
            answer = http_wire.call(port, step)
        elif isinstance(step, RawHttp):
            answer = http_wire.call_raw(port, step)
        elif isinstance(step, Grpc):
            answer = grpc_wire.call(self._channel, step)
        elif isinstance(step, Stream):
            answer = grpc_wire.call_stream(self._channel, step)
        else:
            assert isinstance(step, Metrics)
            with urllib.request.urlopen(f"http://127.0.0.1:{port + 2}/metrics", timeout=30) as response:
                answer = views.metrics_of(response.read().decode(), step.models)
        answer = views.settled(answer, str(self._server.folder))
        view = getattr(step, "view", None)
        return view(answer) if view is not None else answer

    def _do(self, step: Write | Remove | Region | Until) -> Answer | None:
        if isinstance(step, Write):
            path = self._server.folder / step.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text)
        elif isinstance(step, Remove):
            path = self._server.folder / step.path
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif isinstance(step, Until):
            self._until(step)
        else:
            return self._region(step)
        return None

    def _until(self, step: Until) -> None:
        end = time.monotonic() + _STATE_SECONDS
        while time.monotonic() < end:
            rows = http_wire.call(self._server.port, Http("POST", "/v2/repository/index")).get("json")
            assert rows is not None, "the server has ended"
            states = {row.get("state", "") for row in rows if row["name"] == step.model} or {"gone"}
            if states == {step.state}:
                return
            time.sleep(0.02)
        raise AssertionError(f"{step.model} is not {step.state} but {states}")

    def _region(self, step: Region) -> Answer | None:
        if step.content is None:
            return {"region": bytes(self._regions[step.key].buf[: step.size]).hex()}
        region = shared_memory.SharedMemory(step.key, create=True, size=step.size)
        # the tracker would warn about what the case itself removes
        resource_tracker.unregister(region._name, "shared_memory")  # type: ignore[attr-defined]
        region.buf[: len(step.content)] = step.content
        self._regions[step.key] = region
        return None

    def _free_regions(self) -> None:
        for region in self._regions.values():
            region.close()
            with contextlib.suppress(FileNotFoundError):
                resource_tracker.register(region._name, "shared_memory")  # type: ignore[attr-defined]
                region.unlink()
        self._regions.clear()
