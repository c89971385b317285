"""What makes two requests the same for the response cache. Pure."""

from __future__ import annotations

from blake3 import blake3

from serving_node.core.request import InferenceRequest
from serving_node.core.tensor import Tensor


def request_key(namespace: bytes, request: InferenceRequest, inputs: list[Tensor] | None = None) -> bytes:
    """Return 32 bytes that are equal for requests with equal answers, and for no others that anybody could find.

    ``namespace`` stands for model, version and everything else that is the same for all requests. Of the request count
    the inputs (name, datatype, shape, bytes; in any order), the names of the outputs asked for, and the parameters that
    the model sees, forwarded headers among them. Its id, priority, timeout and trace do not. ``inputs`` are used
    instead of the request's own.
    """
    ordered = sorted(request.inputs if inputs is None else inputs, key=_name)
    described = (
        [(tensor.name, tensor.datatype, tuple(tensor.shape), len(tensor.data)) for tensor in ordered],
        [output.name for output in request.outputs],
        sorted(request.parameters.items()),
    )
    # repr tells True from 1 and "1", and writes any text in a way that can be read back
    head = repr(described).encode()
    digest = blake3(namespace)
    digest.update(len(head).to_bytes(8, "little"))
    digest.update(head)
    for tensor in ordered:
        digest.update(tensor.data)
    return digest.digest()


def private_inputs(request: InferenceRequest) -> list[Tensor]:
    """Return the inputs with bytes that nobody else can change.

    For tensors in shared memory: who wrote other bytes there after the key was made would give others a wrong answer.
    """
    return [Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data)) for tensor in request.inputs]


def _name(tensor: Tensor) -> str:
    return tensor.name
