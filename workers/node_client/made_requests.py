"""Inference requests with made-up tensors, for measuring and trying models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from registry.domain.measurements import element_bytes
from serving_node.contract.signature import ModelSignature
from workers.node_client.client import BinaryRequest


def made_request(
    signature: ModelSignature, shapes: Mapping[str, Sequence[int]], parameters: Mapping[str, Any] | None = None
) -> BinaryRequest:
    """Return a request with made-up elements in these shapes (with the batch dimension), by input name."""
    inputs, tensors = [], []
    for tensor in signature.inputs:
        count = 1
        for size in shapes[tensor.name]:
            count *= size
        data = element_bytes(tensor.datatype, count)
        length = {"binary_data_size": len(data)}
        shape = list(shapes[tensor.name])
        inputs.append({"name": tensor.name, "datatype": tensor.datatype, "shape": shape, "parameters": length})
        tensors.append(data)
    document = {"inputs": inputs, **({"parameters": dict(parameters)} if parameters else {})}
    head = json.dumps(document, separators=(",", ":")).encode()
    return BinaryRequest(b"".join([head, *tensors]), len(head))
