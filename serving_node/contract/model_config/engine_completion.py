"""A config and the TensorRT engine it is for: what the engine fills in, and where the two disagree.

Engines have limits of their own for batches, and inputs whose elements are dimensions.
Source: auto-completion and checks of Triton's TensorRT backend, with its sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from serving_node.contract.datatypes import data_type
from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import TYPE_INVALID, DataType, ModelConfig, ModelInput, ModelOutput
from serving_node.contract.signature import ModelSignature, TensorSignature

_Tensor = ModelInput | ModelOutput


def complete_for_engine(
    config: ModelConfig, signature: ModelSignature, *, made_inputs: Collection[str], made_outputs: Collection[str]
) -> ModelConfig:
    """Return a copy of ``config`` with what it leaves open filled in from the engine.

    ``made_inputs`` and ``made_outputs`` are those that the server itself feeds and keeps.

    Raises:
        ContractError: the config contradicts the engine, with Triton's sentence.
    """
    result = ModelConfig()
    result.CopyFrom(config)
    largest = signature.max_batch_size or 0
    hint = _batch_hint(config, signature)
    if hint and largest == 0:
        raise ContractError(
            f"autofill failed for model '{config.name}': model tensor shape configuration hints for dynamic batching "
            "but the underlying engine doesn't support batching.",
            field="max_batch_size",
        )
    if hint is False:
        largest = 0
    if config.max_batch_size > largest:
        raise ContractError(
            f"autofill failed for model '{config.name}': configuration specified max-batch {config.max_batch_size} "
            f"but TensorRT engine only supports max-batch {largest}",
            field="max_batch_size",
        )
    result.max_batch_size = config.max_batch_size or largest
    if largest > 1 and result.WhichOneof("scheduling_choice") is None:
        result.dynamic_batching.SetInParent()
    _fill(result, result.input, [tensor for tensor in signature.inputs if tensor.name not in made_inputs])
    _fill(result, result.output, [tensor for tensor in signature.outputs if tensor.name not in made_outputs])
    return result


def engine_mismatches(
    config: ModelConfig,
    signature: ModelSignature,
    *,
    inputs: Sequence[ModelInput],
    outputs: Sequence[ModelOutput],
    made_inputs: Collection[str],
) -> list[ContractError]:
    """Return where a config and the engine disagree. ``inputs`` and ``outputs`` stand beside those of the config;
    ``made_inputs`` are all that the server itself feeds.
    """
    return [
        *_counts(config, signature, made_inputs),
        *_side(config, "input", [*config.input, *inputs], signature.inputs),
        *_side(config, "output", [*config.output, *outputs], signature.outputs),
    ]


def _batch_hint(config: ModelConfig, signature: ModelSignature) -> bool | None:
    """Return whether the tensors that the config gives leave room for a batch dimension; None: it gives none.

    Raises:
        ContractError: they contradict each other, or the engine has no such tensor.
    """
    hint = False
    has_shapes = False
    sides: tuple[tuple[str, Sequence[_Tensor], Sequence[TensorSignature]], ...] = (
        ("input", config.input, signature.inputs),
        ("output", config.output, signature.outputs),
    )
    for side, given, known in sides:
        names = {tensor.name: tensor for tensor in known}
        for index, tensor in enumerate(given):
            if isinstance(tensor, ModelInput) and tensor.allow_ragged_batch:
                return True
            if tensor.name not in names:
                raise _unexpected(side, tensor.name, names, f"{side}[{index}].name")
            dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            if not dims:
                continue
            has_shapes = True
            engine = names[tensor.name]
            if engine.is_shape_tensor:
                leaves_room = engine.shape[:1] == (dims[0] + 1,)
            else:
                leaves_room = len(engine.shape) == len(dims) + 1
            hint = hint or leaves_room
            if hint and not leaves_room:
                raise ContractError(
                    f"unable to autofill for '{config.name}', model tensor configurations are contradicting each other "
                    "in terms of whether batching is supported",
                    field=f"{side}[{index}].dims",
                )
    return hint if has_shapes else None


def _fill(config: ModelConfig, given: Sequence[_Tensor], known: Sequence[TensorSignature]) -> None:
    """Add all tensors of a side that has none, else complete those that are there."""
    by_name = {tensor.name: tensor for tensor in known}
    if not given:
        for tensor in known:
            given.add(name=tensor.name)  # type: ignore[attr-defined]  # a repeated field
    for target in given:
        engine = by_name.get(target.name)
        if engine is None:
            continue
        if target.data_type == TYPE_INVALID:
            target.data_type = data_type(engine.datatype)
        if not target.dims:
            _fill_dims(target, engine, has_rows=config.max_batch_size > 0)
        target.is_shape_tensor = target.is_shape_tensor or engine.is_shape_tensor


def _fill_dims(target: _Tensor, engine: TensorSignature, *, has_rows: bool) -> None:
    if engine.is_shape_tensor:
        # the engine also takes the number of rows, which the node puts in front
        target.dims.extend([dim - has_rows for dim in engine.shape])
        return
    dims = engine.shape[1:] if has_rows else engine.shape
    target.dims.extend(dims or (1,))
    if not dims:
        target.reshape.SetInParent()


def _counts(config: ModelConfig, signature: ModelSignature, made_inputs: Collection[str]) -> Iterator[ContractError]:
    if len(config.input) > len(signature.inputs):
        yield ContractError(
            f"unable to load model '{config.name}', configuration expects {len(config.input)} inputs, model provides at"
            f" most {len(signature.inputs)}",
            field="input",
        )
    fed = {tensor.name for tensor in config.input} | set(made_inputs)
    kept = {tensor.name for tensor in config.output} | {state.output_name for state in config.sequence_batching.state}
    for side, missing in (
        ("input", [tensor.name for tensor in signature.inputs if tensor.name not in fed]),
        ("output", [tensor.name for tensor in signature.outputs if tensor.name not in kept]),
    ):
        for name in missing:
            yield ContractError(f"expected configuration for {side} '{name}' for {_instance(config)}", field=side)


def _side(
    config: ModelConfig, side: str, given: Sequence[_Tensor], known: Sequence[TensorSignature]
) -> Iterator[ContractError]:
    by_name = {tensor.name: tensor for tensor in known}
    for index, tensor in enumerate(given):
        path = f"{side}[{index}]"
        engine = by_name.get(tensor.name)
        if engine is None:
            yield _unexpected(side, tensor.name, by_name, f"{path}.name")
            continue
        subject = f"{side} '{tensor.name}' for model '{config.name}' is"
        if engine.is_shape_tensor and not tensor.is_shape_tensor:
            sentence = f"{subject} a shape tensor but the model configuration doesn't mark it as a shape tensor."
            yield ContractError(sentence, field=f"{path}.is_shape_tensor")
        elif tensor.is_shape_tensor and not engine.is_shape_tensor:
            sentence = f"{subject} incorrectly marked as a shape tensor in the model configuration."
            yield ContractError(sentence, field=f"{path}.is_shape_tensor")
        if tensor.is_non_linear_format_io:
            sentence = (
                f"{side} '{tensor.name}' for model '{config.name}' uses a linear IO format, but "
                "'is_non_linear_format_io' is incorrectly set to true in the model configuration."
            )
            yield ContractError(sentence, field=f"{path}.is_non_linear_format_io")
        provided = data_type(engine.datatype)
        if tensor.data_type != provided:
            yield ContractError(
                f"unexpected datatype {DataType.Name(provided)} for inference {side} '{tensor.name}', expecting "
                f"{DataType.Name(tensor.data_type)} for {_instance(config)}",
                field=f"{path}.data_type",
            )
        problem = _shape_problem(config, tensor, engine)
        if problem:
            yield ContractError(problem, field=f"{path}.dims")


def _shape_problem(config: ModelConfig, tensor: _Tensor, engine: TensorSignature) -> str:
    """Return what is wrong with the dimensions of a tensor, empty when nothing is."""
    dims = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    has_rows = config.max_batch_size > 0
    subject = f"model '{config.name}', tensor '{tensor.name}':"
    if engine.is_shape_tensor:
        return _values_problem(config, dims, engine)
    if isinstance(tensor, ModelInput) and tensor.allow_ragged_batch and has_rows:
        if len(engine.shape) == 1 and engine.shape == dims:
            return ""
        return (
            f"{subject} for the model to support ragged input, the engine shape is: {_text(engine.shape)} while the "
            f"model config shape is: {_text(dims)}"
        )
    if any(tensor.name in batch_output.target_name for batch_output in config.batch_output):
        return ""
    if has_rows and not engine.shape:
        return (
            f"{subject} for the model to support batching the shape should have at least 1 dimension; but shape "
            f"expected by the model is {_text(engine.shape)}"
        )
    full = (-1, *dims) if has_rows else dims
    if not has_rows and not engine.shape and dims == (1,):
        return ""
    if len(full) == len(engine.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(full, engine.shape, strict=True)
    ):
        return ""
    what = f"(shape {_text(full)})"
    if has_rows:
        what = (
            "(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
            f"complete shape {_text(full)})"
        )
    return (
        f"{subject} the model expects {len(engine.shape)} dimensions (shape {_text(engine.shape)}) but the model "
        f"configuration specifies {len(full)} dimensions {what}"
    )


def _values_problem(config: ModelConfig, dims: tuple[int, ...], engine: TensorSignature) -> str:
    if len(engine.shape) > 1:
        return (
            f"unable to load model '{config.name}', shape binding '{engine.name}' can only be 0-d or 1-D tensor, got "
            f"{_text(engine.shape)}"
        )
    rows = 1 if config.max_batch_size > 0 else 0
    if len(dims) == len(engine.shape) and all(
        dim + rows == wanted and dim != -1 for dim, wanted in zip(dims, engine.shape, strict=True)
    ):
        return ""
    return (
        f"unable to load model '{config.name}', binding '{engine.name}' shape expected by framework "
        f"{_text(engine.shape)} doesn't match model configuration shape {_text(dims)}"
    )


def _unexpected(side: str, name: str, known: Collection[str], field: str) -> ContractError:
    return ContractError(
        f"unexpected inference {side} '{name}', allowed {side}s are: {', '.join(sorted(known))}", field=field
    )


def _instance(config: ModelConfig) -> str:
    """Return the name of the first instance, which Triton's sentences name."""
    return f"{config.instance_group[0].name if config.instance_group else config.name}_0"


def _text(shape: tuple[int, ...]) -> str:
    return f"[{','.join(str(dim) for dim in shape)}]"
