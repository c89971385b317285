"""Instances on the CPU: batches as tensors on the memory that they arrived in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from serving_node.backends.arrays import ArrayInstance
from serving_node.backends.pytorch.failures import run_sentence
from serving_node.backends.pytorch.program import Program
from serving_node.backends.pytorch.settings import TorchSettings
from serving_node.backends.pytorch.tensors import as_array, as_value
from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.state_rules import state_inputs, state_outputs
from serving_node.contract.proto.model_config_pb2 import TYPE_BF16
from serving_node.core.errors import InferenceError
from serving_node.core.rows import Array

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


class TorchInstance(ArrayInstance):
    """Runs batches on a program. Several instances may share one that does not write to its buffers."""

    def __init__(self, program: Program, config: ModelConfig, settings: TorchSettings) -> None:
        super().__init__(
            config, {tensor.name: wire_name(tensor.data_type) for tensor in (*state_outputs(config), *config.output)}
        )
        self._call = program.bind(config)
        self._settings = settings
        self._bfloat16 = frozenset(
            tensor.name for tensor in (*config.input, *state_inputs(config)) if tensor.data_type == TYPE_BF16
        )
        # an output in the memory of a buffer would change with the next batch
        self._kept = frozenset(tensor.untyped_storage().data_ptr() for tensor in program.tensors())
        self._thread = 0

    def close(self) -> None:
        """Let go of the program."""
        self._call = _closed

    def _run(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        if threading.get_ident() != self._thread:
            self._enter_thread()
        try:
            # without inference mode gradients are still off: Triton's INFERENCE_MODE false
            with torch.inference_mode() if self._settings.inference_mode else torch.no_grad():
                return self._computed(names, feed)
        except InferenceError:
            raise
        except Exception as error:
            raise InferenceError(ErrorCode.INTERNAL, run_sentence(error)) from error

    def _computed(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        values = {name: as_value(array, is_bfloat16=name in self._bfloat16) for name, array in feed.items()}
        results = self._call(values, names)
        return [
            as_array(name, self._own(value), self._datatypes[name]) for name, value in zip(names, results, strict=True)
        ]

    def _own(self, value: Any) -> Any:
        is_kept = isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in self._kept
        return value.clone() if is_kept and value.numel() else value

    def _enter_thread(self) -> None:
        """Set the number of threads: PyTorch keeps it for each thread that computes."""
        self._thread = threading.get_ident()
        torch.set_num_threads(self._settings.intra_op_threads)


def _closed(*_: Any) -> list[Any]:
    raise InferenceError(ErrorCode.UNAVAILABLE, "the instance was closed")
