"""A backend for tests: it tells what it sees in its process, and fails as it is told. Run in workers only."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from serving_node.contract.errors import ErrorCode
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.core.backend import Device, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor

MEMORY_BYTES = 12_345


class ProbeInstance:
    """Answers with what it sees, as JSON."""

    def __init__(self, model: ProbeModel, device: Device, name: str) -> None:
        self._model = model
        self._seen = {"kind": device.kind.value, "index": device.index, "instance": name}

    def execute(self, execution: Execution) -> None:
        orders = [str(request.parameters.get("do", "")) for request in execution.requests]
        if "die" in orders:
            os._exit(7)
        if "raise" in orders:
            raise RuntimeError("this went wrong")
        if "refuse" in orders:
            raise InferenceError(ErrorCode.UNAVAILABLE, "not today")
        if "forget" in orders:
            return
        if "wait" in orders:
            flag = Path(str(execution.requests[0].parameters["until"]))
            while not flag.exists():
                time.sleep(0.005)
        execution.inputs_ready_ns = execution.computed_ns = time.monotonic_ns()
        for place, request in enumerate(execution.requests):
            if orders[place] == "fail":
                execution.results.append(InferenceError(ErrorCode.NOT_FOUND, "only this one"))
                continue
            text = json.dumps({**self._seen, **self._model.seen(), **_of(request), "batch": len(orders)})
            array = np.array([text.encode()] * request.batch_size, np.object_).reshape(-1, 1)
            execution.results.append([Tensor.from_numpy("OUT", array, "BYTES")])
            execution.parameters = {**(execution.parameters or {}), place: {"place": place, "half": 0.5}}

    def close(self) -> None:
        self._model.note("instance closed")


def _of(request: InferenceRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "sequence": request.sequence_id,
        "start": request.sequence_start,
        "end": request.sequence_end,
        "parameters": request.parameters,
        "outputs": [output.name for output in request.outputs],
        "rows": request.batch_size,
        "input": request.inputs[0].as_numpy().tolist(),
    }


class ProbeModel:
    """What was opened."""

    def __init__(self, source: ModelSource, options: Mapping[str, str]) -> None:
        self._source = source
        self._options = options
        parameters = {key: value.string_value for key, value in source.config.parameters.items()}
        self._shares = parameters.get("shares") == "true"
        self._diary = parameters.get("diary", "")
        if parameters.get("open") == "fail":
            raise InferenceError(ErrorCode.INVALID_ARG, "the file is broken")
        if parameters.get("open") == "die":
            os._exit(9)
        self._weights = np.ones(int(parameters.get("weights", "0")), np.uint8)
        self._create = parameters.get("create", "")

    def seen(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "in_worker": self._source.in_worker,
            "options": dict(self._options),
            "environment": dict(os.environ),
            "temporary": tempfile.gettempdir(),
            "cores": sorted(os.sched_getaffinity(0)),
            "directory": str(self._source.directory),
        }

    def note(self, what: str) -> None:
        if self._diary:
            with Path(self._diary).open("a") as diary:
                diary.write(f"{what}\n")

    def signature(self) -> ModelSignature:
        return ModelSignature((TensorSignature("IN", "INT32", (-1, 2)),), (TensorSignature("OUT", "BYTES", (-1, 1)),))

    def create_instance(self, device: Device, config: Any, name: str) -> ProbeInstance:
        if self._create == "fail":
            raise InferenceError(ErrorCode.UNSUPPORTED, "no such device")
        return ProbeInstance(self, device, name)

    def memory_bytes(self) -> int:
        return MEMORY_BYTES

    def shares_process(self) -> bool:
        return self._shares

    def close(self) -> None:
        self.note("model closed")


class DescribedModel(ProbeModel):
    """One that completes its config."""

    def signature(self) -> None:  # type: ignore[override]
        return None

    def describe(self, config: Any) -> Mapping[str, Any]:
        return {
            "max_batch_size": 4,
            "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [2]}],
            "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}],
        }


class ProbeBackend:
    name = "probe"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def open_model(self, source: ModelSource) -> ProbeModel:
        is_described = "described" in source.config.parameters
        return (DescribedModel if is_described else ProbeModel)(source, self._options)


def backend(options: Mapping[str, str], calls: InnerCalls) -> ProbeBackend:
    """Return the backend."""
    return ProbeBackend(options)
