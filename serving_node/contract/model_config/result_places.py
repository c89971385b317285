"""Tensors of PyTorch models under the names that a config gives them. Pure.

An exported program names its arguments, and its results only where it gives a dict; else they are ``OUTPUT__0``,
``OUTPUT__1``... in its signature. A config may call a tensor anything followed by two underscores and its place, and
results without names anything at all: they are meant in the config's order then.

Source: the naming rules of Triton's PyTorch backend; serving_node.backends.pytorch.naming does the same on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.contract.signature import ModelSignature, TensorSignature


def as_called(config: ModelConfig, signature: ModelSignature) -> ModelSignature:
    """Return the signature of a PyTorch model with the config's names for its tensors; any other as it is."""
    if config.backend != "pytorch" or signature.is_declared:
        return signature
    results = signature.outputs
    ordered = all(tensor.name == f"OUTPUT__{place}" for place, tensor in enumerate(results))
    return replace(
        signature,
        inputs=_renamed(signature.inputs, [tensor.name for tensor in config.input], ordered=False),
        outputs=_renamed(results, [tensor.name for tensor in config.output], ordered=ordered),
    )


def _renamed(tensors: Sequence[TensorSignature], names: Sequence[str], *, ordered: bool) -> tuple[TensorSignature, ...]:
    own = {tensor.name: place for place, tensor in enumerate(tensors)}
    places = [_place(name, own, len(tensors)) for name in names]
    if ordered and None in places and len(names) <= len(tensors):
        places = list(range(len(names)))
    called = {place: name for name, place in zip(names, places, strict=True) if place is not None}
    return tuple(replace(tensor, name=called.get(place, tensor.name)) for place, tensor in enumerate(tensors))


def _place(name: str, own: dict[str, int], count: int) -> int | None:
    """Return which tensor a name means, None when it says nothing."""
    if name in own:
        return own[name]
    index = name.partition("__")[2]
    place = int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else count
    return place if place < count else None
