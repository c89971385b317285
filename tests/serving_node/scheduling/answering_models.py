"""Models that answer when a test says so, and the configs of ensembles of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import OutputClasses
from serving_node.core.request import InferenceRequest


@dataclass
class Models:
    """The door to models that answer when the test says so. ``requests`` are those that were made, in order."""

    configs: dict[str, ModelConfig] = field(default_factory=dict)
    requests: list[InferenceRequest] = field(default_factory=list)
    refuse: dict[str, InferenceError] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)
    on_request: Callable[[InferenceRequest], None] | None = None

    def infer(self, request: InferenceRequest) -> None:
        if request.model_name in self.refuse:
            raise self.refuse[request.model_name]
        self.requests.append(request)
        if self.on_request is not None:
            self.on_request(request)

    def model_ready(self, name: str, version: str) -> bool:
        return name not in self.unready

    def model_config(self, name: str, version: str) -> ModelConfig:
        if name not in self.configs:
            raise InferenceError(ErrorCode.NOT_FOUND, "no such model")
        return self.configs[name]

    def output_classes(self, name: str, version: str) -> OutputClasses:
        return OutputClasses(True, {"o": (f"label of {name}",)})

    def origin(self, name: str, version: str) -> bytes | None:
        return None

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None: ...

    async def unload(self, name: str, unload_dependents: bool) -> None: ...

    def of(self, model: str) -> list[InferenceRequest]:
        return [request for request in self.requests if request.model_name == model]


def io(side: str, name: str, more: str = "") -> str:
    return f'{side} {{ name: "{name}" data_type: TYPE_INT32 dims: 1 {more} }}'


def model(name: str, *, decoupled: bool = False, inputs: str = "i", optional: str = "", rows: int = 0) -> ModelConfig:
    parts = [f'name: "{name}" max_batch_size: {rows}', io("output", "o")]
    parts += [io("input", one) for one in inputs.split()] + [
        io("input", one, "optional: true") for one in optional.split()
    ]
    if decoupled:
        parts.append("model_transaction_policy { decoupled: true }")
    return parse_pbtxt(" ".join(parts))


def step(name: str, inputs: str, output: str, version: int = -1) -> str:
    """``inputs`` are pairs of model's and ensemble's names; the output of the model is always ``o``."""
    maps = "".join(
        f'input_map {{ key: "{own}" value: "{tensor}" }}'
        for own, tensor in (pair.split("=") for pair in inputs.split())
    )
    return (
        f'step {{ model_name: "{name}" model_version: {version} {maps} output_map {{ key: "o" value: "{output}" }} }}'
    )


def ensemble(*steps: str, inputs: str = "A", optional: str = "", outputs: str = "Z", more: str = "") -> ModelConfig:
    parts = [f'name: "e" platform: "ensemble" {more}']
    parts += [io("input", one) for one in inputs.split()] + [
        io("input", one, "optional: true") for one in optional.split()
    ]
    parts += [io("output", one) for one in outputs.split()]
    return parse_pbtxt(f"{' '.join(parts)} ensemble_scheduling {{ {' '.join(steps)} }}")
