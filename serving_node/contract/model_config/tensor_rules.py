"""Rules of inputs, outputs, and the tensors that the server adds to a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod

from serving_node.contract.errors import ContractError
from serving_node.contract.proto import model_config_pb2 as pb
from serving_node.contract.proto.model_config_pb2 import (
    BatchInput,
    BatchOutput,
    ModelConfig,
    ModelInput,
    ModelOutput,
)

_TENSORRT = "tensorrt_plan"


def tensor_problems(config: ModelConfig, *, require_tensors: bool) -> Iterator[ContractError]:
    """Yield the broken rules of ``input``, ``output``, ``batch_input`` and ``batch_output``."""
    for problem in chain(
        _io_problems(config, "input", config.input, require_tensors),
        _io_problems(config, "output", config.output, require_tensors),
        _batch_input_problems(config),
        _batch_output_problems(config),
    ):
        yield ContractError(f"{problem.message} for {config.name}", field=problem.field)


def _io_problems(
    config: ModelConfig, side: str, tensors: Sequence[ModelInput | ModelOutput], require: bool
) -> Iterator[ContractError]:
    if require and not tensors:
        yield ContractError(f"must specify at least one '{side}'", field=side)
    seen: set[str] = set()
    for index, tensor in enumerate(tensors):
        path = f"{side}[{index}]"
        if tensor.name and tensor.name in seen:
            yield ContractError(f"model {side} '{tensor.name}' is specified more than once", field=f"{path}.name")
        seen.add(tensor.name)
        yield from _shape_problems(tensor, config.max_batch_size, side, path)
        if isinstance(tensor, ModelInput) and tensor.format != ModelInput.FORMAT_NONE and len(tensor.dims) != 3:
            yield ContractError("model input NHWC/NCHW require 3 dims", field=f"{path}.format")
        if tensor.is_shape_tensor and config.platform != _TENSORRT:
            yield ContractError(
                "shape tensors are only supported for TensorRT platform", field=f"{path}.is_shape_tensor"
            )
        if tensor.is_non_linear_format_io:
            field = f"{path}.is_non_linear_format_io"
            if config.platform != _TENSORRT:
                yield ContractError("Non-linear IO format is only supported for the TensorRT platform", field=field)
            elif len(tensor.dims) != 3:
                yield ContractError(f"Non-linear IO format {side} requires 3 dims", field=field)


def _shape_problems(
    tensor: ModelInput | ModelOutput, max_batch_size: int, side: str, path: str
) -> Iterator[ContractError]:
    if not tensor.name:
        yield ContractError(f"model {side} must specify 'name'", field=f"{path}.name")
        return
    subject = f"model {side} '{tensor.name}'"
    if tensor.data_type == pb.TYPE_INVALID:
        yield ContractError(f"{subject} must specify 'data_type'", field=f"{path}.data_type")
    if not tensor.dims:
        yield ContractError(f"{subject} must specify 'dims'", field=f"{path}.dims")
    elif any(dim < 1 and dim != -1 for dim in tensor.dims):
        yield ContractError(
            f"{subject} dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
            field=f"{path}.dims",
        )
    elif tensor.HasField("reshape"):
        yield from _reshape_problems(tensor.dims, tensor.reshape.shape, max_batch_size, subject, f"{path}.reshape")


def _reshape_problems(
    dims: Sequence[int], shape: Sequence[int], max_batch_size: int, subject: str, path: str
) -> Iterator[ContractError]:
    if not shape and max_batch_size == 0:
        yield ContractError(
            f"{subject} cannot have empty reshape for non-batching model as scalar tensors are not supported",
            field=path,
        )
    elif any(dim < 1 and dim != -1 for dim in shape):
        yield ContractError(
            f"{subject} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
            field=path,
        )
    elif (-1 in dims) != (-1 in shape):
        yield ContractError(f"{subject} has different size for dims and reshape", field=path)
    elif list(dims).count(-1) != list(shape).count(-1):
        yield ContractError(
            f"{subject} has different number of variable-size dimensions for dims and reshape", field=path
        )
    elif _fixed_parts(dims) != _fixed_parts(shape):
        yield ContractError(f"{subject} has different size for dims and reshape", field=path)


def _fixed_parts(shape: Sequence[int]) -> list[int]:
    """Return the element counts between the variable dimensions: [2, 4, -1, 6] -> [8, 6]."""
    parts: list[list[int]] = [[]]
    for dim in shape:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]


def _batch_input_problems(config: ModelConfig) -> Iterator[ContractError]:
    inputs = {tensor.name for tensor in config.input}
    for index, batch_input in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        if len(batch_input.source_input) != 1:
            yield ContractError(
                f"batch input kind '{BatchInput.Kind.Name(batch_input.kind)}' expects 1 source input, got "
                f"{len(batch_input.source_input)}",
                field=f"{path}.source_input",
            )
        if batch_input.data_type not in (pb.TYPE_INT32, pb.TYPE_FP32):
            yield ContractError("batch input data type must be TYPE_INT32 or TYPE_FP32", field=f"{path}.data_type")
        yield from _source_problems(batch_input.source_input, inputs, path)


def _batch_output_problems(config: ModelConfig) -> Iterator[ContractError]:
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, batch_output in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        if len(batch_output.source_input) != 1:
            yield ContractError(
                f"batch output kind '{BatchOutput.Kind.Name(batch_output.kind)}' expects 1 source input, got "
                f"{len(batch_output.source_input)}",
                field=f"{path}.source_input",
            )
        yield from _source_problems(batch_output.source_input, inputs, path)
        targets = list(batch_output.target_name)
        for place, target in enumerate(targets):
            field = f"{path}.target_name[{place}]"
            if target not in outputs:
                yield ContractError(f"unknown target output name '{target}'", field=field)
            elif target in targets[:place]:
                yield ContractError(f"target output name '{target}' can only be specified once", field=field)


def _source_problems(sources: Sequence[str], inputs: set[str], path: str) -> Iterator[ContractError]:
    for index, source in enumerate(sources):
        if source not in inputs:
            yield ContractError(f"unknown source input name '{source}'", field=f"{path}.source_input[{index}]")
