"""Instances on a GPU: a stream for each, copies through pinned memory, CUDA graphs for fixed batch sizes.

No machine of ours has run this module; its tests with the mark ``gpu`` do where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from serving_node.backends.pytorch.instance import TorchInstance
from serving_node.backends.pytorch.program import Call, Program
from serving_node.backends.pytorch.settings import TorchSettings, graph_sizes
from serving_node.backends.pytorch.tensors import TORCH_TYPES, Value, as_array, as_value
from serving_node.contract.datatypes import wire_name
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.state_rules import control_inputs, state_inputs
from serving_node.core.errors import InferenceError
from serving_node.core.rows import Array

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig

# name, element type and shape of each input, by name: what a graph was captured for
Shapes = tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]
# runs before capturing, in which libraries allocate and choose their kernels
_WARM_RUNS = 3


def shapes_of(values: Mapping[str, Value]) -> Shapes | None:
    """Return what tells one graph from another; None when strings are among the values."""
    tensors = [(name, value) for name, value in sorted(values.items()) if not isinstance(value, list)]
    if len(tensors) < len(values):
        return None
    return tuple((name, value.dtype, tuple(value.shape)) for name, value in tensors)


def graph_shapes(config: ModelConfig) -> list[Shapes]:
    """Return the inputs of the graphs that a config asks for.

    Raises:
        InferenceError: INVALID_ARG, an input has no fixed shape.
    """
    found: list[Shapes] = []
    for size in graph_sizes(config):
        inputs = []
        for tensor in (*config.input, *control_inputs(config), *state_inputs(config)):
            dims = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else tuple(tensor.dims)
            datatype = wire_name(tensor.data_type)
            if -1 in dims or datatype not in TORCH_TYPES:
                raise InferenceError(
                    ErrorCode.INVALID_ARG,
                    f"model '{config.name}' asks for CUDA graphs, which need tensors of fixed shapes, and input"
                    f" '{tensor.name}' is none",
                )
            inputs.append((tensor.name, TORCH_TYPES[datatype], (size, *dims) if size else dims))
        found.append(tuple(sorted(inputs, key=lambda one: one[0])))
    return found


class PinnedInputs:
    """Page-locked memory for each input, from which the GPU copies by itself. It grows and is used again."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: dict[str, torch.Tensor] = {}

    def bring(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Start copying a tensor to the GPU. The last copy of this input must be over."""
        if not value.numel():
            return value.to(self._device)
        size = value.numel() * value.element_size()
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size:
            memory = self._memory[name] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        pinned = memory[:size].view(value.dtype).view(value.shape)
        pinned.copy_(value)
        return pinned.to(self._device, non_blocking=True)


class Graph:
    """One captured execution, with inputs and outputs at fixed places."""

    def __init__(self, call: Call, names: Sequence[str], shapes: Shapes, device: torch.device) -> None:
        self._inputs: dict[str, torch.Tensor] = {
            name: torch.zeros(shape, dtype=kind, device=device) for name, kind, shape in shapes
        }
        self._names = list(names)
        for _ in range(_WARM_RUNS):
            call(self._inputs, self._names)
        torch.cuda.current_stream().synchronize()
        self._graph = torch.cuda.CUDAGraph()
        # thread_local: other instances go on computing meanwhile
        with torch.cuda.graph(self._graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self._outputs = dict(zip(self._names, call(self._inputs, self._names), strict=True))

    def run(self, values: Mapping[str, Value], names: Sequence[str]) -> list[Any]:
        """Return outputs, whose memory the next run writes to."""
        for name, value in values.items():
            self._inputs[name].copy_(value, non_blocking=True)
        self._graph.replay()
        return [self._outputs[name] for name in names]


class CudaInstance(TorchInstance):
    """Runs batches on its own stream of one GPU."""

    def __init__(self, program: Program, config: ModelConfig, settings: TorchSettings) -> None:
        super().__init__(program, config, settings)
        self._device = program.device
        self._stream = torch.cuda.Stream(self._device)
        self._pinned = PinnedInputs(self._device)
        self._graphs: dict[Shapes, Graph] = {}
        with self._modes(), torch.inference_mode() if settings.inference_mode else torch.no_grad():
            for shapes in graph_shapes(config):
                self._graphs[shapes] = Graph(self._call, self._outputs, shapes, self._device)

    def close(self) -> None:
        """Let go of the program, its graphs and the memory that nobody uses."""
        super().close()
        self._graphs.clear()
        torch.cuda.empty_cache()

    def _computed(self, names: list[str], feed: dict[str, Array]) -> Sequence[Array]:
        with self._modes():
            values = {name: self._brought(name, array) for name, array in feed.items()}
            results = self._results_of(values, names)
            held = [self._fetched(value) for value in results]
            self._stream.synchronize()
            arrays = [as_array(name, value, self._datatypes[name]) for name, value in zip(names, held, strict=True)]
        if self._settings.cleans_cache:
            torch.cuda.empty_cache()
        return arrays

    def _modes(self) -> _Modes:
        return _Modes(self._stream, self._settings.cudnn)

    def _brought(self, name: str, array: Array) -> Value:
        value = as_value(array, is_bfloat16=name in self._bfloat16)
        return value if isinstance(value, list) else self._pinned.bring(name, value)

    def _results_of(self, values: Mapping[str, Value], names: list[str]) -> list[Any]:
        if self._graphs:
            shapes = shapes_of(values)
            graph = self._graphs.get(shapes) if shapes is not None else None
            if graph is not None:
                return graph.run(values, names)
        return self._call(values, names)

    def _fetched(self, value: Any) -> Any:
        """Start copying a result to pinned memory of its own."""
        if not isinstance(value, torch.Tensor) or value.device.type == "cpu" or not value.numel():
            return self._own(value)
        held = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        return held.copy_(value, non_blocking=True)


class _Modes:
    """The stream, and whether cuDNN is used, for the thread that enters."""

    def __init__(self, stream: torch.cuda.Stream, uses_cudnn: bool) -> None:
        self._stream = torch.cuda.stream(stream)
        self._cudnn = None if uses_cudnn else torch.backends.cudnn.flags(enabled=False)

    def __enter__(self) -> None:
        self._stream.__enter__()
        if self._cudnn is not None:
            self._cudnn.__enter__()

    def __exit__(self, *reason: Any) -> None:
        if self._cudnn is not None:
            self._cudnn.__exit__(*reason)
        self._stream.__exit__(*reason)
