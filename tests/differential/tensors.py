"""Tensors as a case writes them, and requests in the four forms in which clients send them."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from tests.differential.steps import Case, Grpc, Http, Step

NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
DATATYPES = (*NUMPY, "BYTES", "BF16")
_TYPED = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
FORMS = ("json", "binary", "raw", "typed")


@dataclass(frozen=True, slots=True)
class T:
    """One input: flat ``values``; ``raw`` are its bytes where they are not those of the values."""

    name: str
    datatype: str
    shape: Sequence[Any]
    values: Sequence[Any] = ()
    raw: bytes | None = None
    parameters: Mapping[str, Any] | None = None

    def bytes(self) -> bytes:
        """Return what the binary forms carry."""
        if self.raw is not None:
            return self.raw
        if self.datatype == "BYTES":
            encoded = [value.encode() if isinstance(value, str) else bytes(value) for value in self.values]
            return b"".join(struct.pack("<I", len(value)) + value for value in encoded)
        if self.datatype == "BF16":
            return b"".join(struct.pack("<f", value)[2:] for value in self.values)
        return np.array(self.values, NUMPY[self.datatype]).tobytes()


@dataclass(frozen=True, slots=True)
class Out:
    """One requested output."""

    name: str
    parameters: Mapping[str, Any] | None = None


def http_path(model: str, version: str = "", verb: str = "infer") -> str:
    """Return the path of a model's ``verb``."""
    tail = "/" + verb if verb else ""
    return f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + tail


def _document(
    inputs: Sequence[T], outputs: Sequence[Out] | None, id: str, parameters: Mapping[str, Any] | None, binary: bool
) -> dict[str, Any]:
    document: dict[str, Any] = {"id": id} if id else {}
    if parameters is not None:
        document["parameters"] = dict(parameters)
    document["inputs"] = []
    for tensor in inputs:
        entry: dict[str, Any] = {"name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype}
        if binary:
            entry["parameters"] = {"binary_data_size": len(tensor.bytes())}
        elif tensor.parameters is None or "shared_memory_region" not in tensor.parameters:
            entry["data"] = [v.decode() if isinstance(v, bytes) else v for v in tensor.values]
        if tensor.parameters is not None:
            entry["parameters"] = {**entry.get("parameters", {}), **tensor.parameters}
        document["inputs"].append(entry)
    if outputs is not None:
        document["outputs"] = [
            {"name": out.name, **({} if out.parameters is None else {"parameters": dict(out.parameters)})}
            for out in outputs
        ]
    return document


def http_json(
    model: str,
    inputs: Sequence[T] = (),
    outputs: Sequence[Out] | None = None,
    *,
    id: str = "",
    parameters: Mapping[str, Any] | None = None,
    version: str = "",
    headers: Mapping[str, str] | None = None,
) -> Http:
    """Return an inference request in JSON."""
    body = json.dumps(_document(inputs, outputs, id, parameters, binary=False)).encode()
    return Http("POST", http_path(model, version), body, {"Content-Type": "application/json", **(headers or {})})


def http_binary(
    model: str,
    inputs: Sequence[T] = (),
    outputs: Sequence[Out] | None = None,
    *,
    id: str = "",
    parameters: Mapping[str, Any] | None = None,
    version: str = "",
    headers: Mapping[str, str] | None = None,
    binary_output: bool = True,
) -> Http:
    """Return an inference request with the binary tensor extension."""
    if binary_output and outputs is None:
        parameters = {**(parameters or {}), "binary_data_output": True}
    elif binary_output and outputs is not None:
        # the request's parameter is not for outputs that are listed
        outputs = [out if out.parameters is not None else Out(out.name, {"binary_data": True}) for out in outputs]
    document = json.dumps(_document(inputs, outputs, id, parameters, binary=True)).encode()
    body = document + b"".join(tensor.bytes() for tensor in inputs)
    return Http(
        "POST",
        http_path(model, version),
        body,
        {
            "Content-Type": "application/octet-stream",
            "Inference-Header-Content-Length": str(len(document)),
            **(headers or {}),
        },
    )


def set_parameters(target: Any, parameters: Mapping[str, Any] | None) -> None:
    """Fill a protobuf map of InferParameter. Integers become int64_param, or uint64_param where they are too large."""
    for name, value in (parameters or {}).items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, int):
            if value > 2**63 - 1:
                target[name].uint64_param = value
            else:
                target[name].int64_param = value
        elif isinstance(value, float):
            target[name].double_param = value
        elif value is None:
            target[name].SetInParent()
        else:
            target[name].string_param = value


def infer_message(
    model: str,
    inputs: Sequence[T] = (),
    outputs: Sequence[Out] | None = None,
    *,
    id: str = "",
    parameters: Mapping[str, Any] | None = None,
    version: str = "",
    typed: bool = False,
) -> Any:
    """Return a ModelInferRequest."""
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=id)
    set_parameters(message.parameters, parameters)
    for tensor in inputs:
        entry = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=list(tensor.shape))
        set_parameters(entry.parameters, tensor.parameters)
        if tensor.parameters and "shared_memory_region" in tensor.parameters:
            continue
        if typed:
            values = [v.encode() if isinstance(v, str) else v for v in tensor.values]
            getattr(entry.contents, _TYPED[tensor.datatype]).extend(values)
        else:
            message.raw_input_contents.append(tensor.bytes())
    for out in outputs or ():
        entry = message.outputs.add(name=out.name)
        set_parameters(entry.parameters, out.parameters)
    return message


def grpc_raw(model: str, *args: Any, metadata: tuple[tuple[str, str], ...] = (), **more: Any) -> Grpc:
    """Return a ModelInfer call with raw contents."""
    return Grpc("ModelInfer", infer_message(model, *args, **more), metadata=metadata)


def grpc_typed(model: str, *args: Any, **more: Any) -> Grpc:
    """Return a ModelInfer call with typed contents."""
    return Grpc("ModelInfer", infer_message(model, *args, typed=True, **more))


_RENDER = {"json": http_json, "binary": http_binary, "raw": grpc_raw, "typed": grpc_typed}


def step(form: str, model: str, *args: Any, **more: Any) -> Step:
    """Return an inference request in one of ``FORMS``."""
    return _RENDER[form](model, *args, **more)  # type: ignore[operator,no-any-return]


def infer_cases(
    id: str,
    model: str,
    inputs: Sequence[T] = (),
    outputs: Sequence[Out] | None = None,
    *,
    forms: Sequence[str] = FORMS,
    request_id: str = "",
    parameters: Mapping[str, Any] | None = None,
    version: str = "",
    models: tuple[str, ...] | None = None,
    **of_case: Any,
) -> list[Case]:
    """Return one case per form of the same request."""
    return [
        Case(
            f"{id}-{form}",
            (step(form, model, inputs, outputs, id=request_id, parameters=parameters, version=version),),
            models=(model,) if models is None else models,
            **of_case,
        )
        for form in forms
    ]


def flat(*groups: Sequence[Case] | Case) -> tuple[Case, ...]:
    """Return all cases of lists and single cases."""
    return tuple(itertools.chain.from_iterable([g] if isinstance(g, Case) else g for g in groups))
