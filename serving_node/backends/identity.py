"""A backend that gives its inputs back: for tests and for measuring everything but the engine.

Output ``i`` of the config is input ``i``. The parameter ``execute_delay_ms`` makes every execution take that long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from serving_node.core.backend import Device, ModelSource
from serving_node.core.execution import Execution
from serving_node.core.inner_calls import InnerCalls
from serving_node.core.tensor import Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig
    from serving_node.contract.signature import ModelSignature


class IdentityInstance:
    """Answers each request with its own tensors."""

    def __init__(self, config: ModelConfig) -> None:
        self._names = [(message.name, config.output[i].name) for i, message in enumerate(config.input)]
        delay = {name: value.string_value for name, value in config.parameters.items()}.get("execute_delay_ms")
        self._delay_seconds = float(delay or 0) / 1000

    def execute(self, execution: Execution) -> None:
        """Fill the results."""
        execution.inputs_ready_ns = time.monotonic_ns()
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        execution.computed_ns = time.monotonic_ns()
        for request in execution.requests:
            given = {tensor.name: tensor for tensor in request.inputs}
            wanted = {output.name for output in request.outputs}
            execution.results.append(
                [
                    Tensor(target, given[source].datatype, given[source].shape, given[source].data)
                    for source, target in self._names
                    if source in given and (not wanted or target in wanted)
                ]
            )

    def close(self) -> None:
        """Nothing to free."""


class IdentityModel:
    """A model without a file."""

    def signature(self) -> ModelSignature | None:
        """Return None: the config says it all."""
        return None

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> IdentityInstance:
        """Return an executor; the device does not matter."""
        return IdentityInstance(config)

    def memory_bytes(self) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Nothing to free."""


class IdentityBackend:
    """See the module."""

    name = "identity"

    def open_model(self, source: ModelSource) -> IdentityModel:
        """Return the model; no file is read."""
        return IdentityModel()


def backend(options: Mapping[str, str], calls: InnerCalls) -> IdentityBackend:
    """Return the backend."""
    return IdentityBackend()
