"""A config and the model file it is for: what the file can fill in, and where the two disagree.

Source: auto-completion and shape checks of Triton's ONNX Runtime backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serving_node.contract.datatypes import data_type
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config.engine_completion import complete_for_engine, engine_mismatches
from serving_node.contract.model_config.padding import padding_inputs
from serving_node.contract.model_config.platforms import fill_backend
from serving_node.contract.model_config.result_places import as_called
from serving_node.contract.model_config.state_rules import control_inputs, state_inputs, state_outputs
from serving_node.contract.proto.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput
from serving_node.contract.signature import ModelSignature, TensorSignature

DEFAULT_MAX_BATCH_SIZE = 4
"""What auto-completion sets for a batchable model; Triton's ``default-max-batch-size``."""

UPLOAD_MAX_BATCH_SIZE = 8
"""What ``default_config`` proposes for a batchable model."""

_Tensor = ModelInput | ModelOutput


def complete(
    config: ModelConfig, signature: ModelSignature, *, default_max_batch_size: int = DEFAULT_MAX_BATCH_SIZE
) -> ModelConfig:
    """Return a copy of ``config`` with what it leaves open filled in from the model file.

    Nothing changes when inputs and outputs are both given. Otherwise the missing side is filled, a batchable model
    without ``max_batch_size`` gets ``default_max_batch_size``, and dynamic batching if no scheduler is chosen.

    Raises:
        ContractError: ``max_batch_size`` is set but the model cannot be batched.
    """
    if signature.max_batch_size is not None:
        made_inputs, made_outputs = _made_by_server(config)
        return complete_for_engine(config, signature, made_inputs=made_inputs, made_outputs=made_outputs)
    result = ModelConfig()
    result.CopyFrom(config)
    if config.input and config.output:
        return result
    if config.max_batch_size > 0 and not signature.is_batchable:
        raise ContractError(
            f"autofill failed for model '{config.name}': model does not support batching while non-zero "
            "max_batch_size is specified",
            field="max_batch_size",
        )
    if config.max_batch_size == 0 and signature.is_batchable and _given_without_batch(config, signature):
        result.max_batch_size = default_max_batch_size
    if result.max_batch_size > 1 and result.WhichOneof("scheduling_choice") is None:
        result.dynamic_batching.SetInParent()
    _fill_tensors(result, signature)
    return result


def default_config(name: str, signature: ModelSignature, *, backend: str = "onnxruntime") -> ModelConfig:
    """Return a sensible config for a model that came without one.

    A batchable model gets batches of up to 8 and dynamic batching. A tensor without dimensions becomes ``dims: [1]``;
    in a batch with an empty reshape, so that the model still sees one value per item.
    """
    config = ModelConfig(name=name, backend=backend)
    fill_backend(config)
    return complete(config, signature, default_max_batch_size=UPLOAD_MAX_BATCH_SIZE)


def check_signature(config: ModelConfig, signature: ModelSignature) -> list[ContractError]:
    """Return where ``config`` and the model file disagree, inputs first; empty when the config fits.

    Every input of the file must be in the config or be fed by the server (controls, states, batch inputs). Outputs of
    the file may be left out, and so may inputs that have a value in the file; in the config those are ``optional``.
    """
    if signature.max_batch_size is not None:
        return engine_mismatches(
            config,
            signature,
            inputs=[*control_inputs(config), *state_inputs(config)],
            outputs=state_outputs(config),
            made_inputs=_made_by_server(config)[0],
        )
    signature = as_called(config, signature)
    errors = []
    replaceable = {tensor.name for tensor in signature.optional_inputs}
    left_out = sum(tensor.optional and tensor.name in replaceable for tensor in config.input)
    made = () if signature.is_declared else _made_by_server(config)[0]
    count = len(config.input) - left_out + len(made)
    if count != len(signature.inputs):
        errors.append(
            ContractError(
                f"unable to load model '{config.name}', configuration expects {count} inputs, model provides "
                f"{len(signature.inputs)}",
                field="input",
            )
        )
    errors += _check_side(config, "input", config.input, (*signature.inputs, *signature.optional_inputs))
    errors += _check_optional(config)
    errors += _check_side(config, "output", config.output, signature.outputs)
    if not signature.is_declared:
        errors += _check_side(config, "input", (*control_inputs(config), *state_inputs(config)), signature.inputs)
        errors += _check_side(config, "output", state_outputs(config), signature.outputs)
    return errors


def _check_optional(config: ModelConfig) -> Iterator[ContractError]:
    """Yield where a model of ONNX Runtime, which fills in only values without a batch dimension, asks for more."""
    if config.backend != "onnxruntime" or not config.max_batch_size:
        return
    for index, tensor in enumerate(config.input):
        if tensor.optional:
            yield ContractError(
                f"unable to load model '{config.name}', optional input '{tensor.name}' is not supported for models "
                "that support batching",
                field=f"input[{index}].optional",
            )


def _given_without_batch(config: ModelConfig, signature: ModelSignature) -> bool:
    """Return whether the tensors that the config gives leave room for a batch dimension in front."""
    ranks = {tensor.name: len(tensor.shape) for tensor in (*signature.inputs, *signature.outputs)}
    given: list[_Tensor] = [*config.input, *config.output]
    return all(len(tensor.dims) < ranks.get(tensor.name, 0) for tensor in given)


def _fill_tensors(config: ModelConfig, signature: ModelSignature) -> None:
    skip = 1 if config.max_batch_size > 0 else 0
    made_inputs, made_outputs = _made_by_server(config)
    inputs = () if config.input else [t for t in signature.inputs if t.name not in made_inputs]
    outputs = () if config.output else [t for t in signature.outputs if t.name not in made_outputs]
    for tensor in inputs:
        _fill_tensor(config.input.add(), tensor, skip)
    for tensor in outputs:
        _fill_tensor(config.output.add(), tensor, skip)


def _made_by_server(config: ModelConfig) -> tuple[set[str], set[str]]:
    """Return the model inputs that the server itself feeds (controls, states, batch inputs, what padding makes),
    and the outputs it keeps.
    """
    sequence = config.sequence_batching
    inputs = {control.name for control in sequence.control_input} | {state.input_name for state in sequence.state}
    inputs |= {name for batch_input in config.batch_input for name in batch_input.target_name}
    inputs.update(padding_inputs(config))
    return inputs, {state.output_name for state in sequence.state}


def _fill_tensor(target: _Tensor, tensor: TensorSignature, skip: int) -> None:
    target.name = tensor.name
    target.data_type = data_type(tensor.datatype)
    target.dims.extend(tensor.shape[skip:] or (1,))
    # Without a batch dimension an empty reshape is not allowed: a scalar stays [1] there, and the backend drops it.
    if skip and len(tensor.shape) == skip:
        target.reshape.SetInParent()


def _check_side(
    config: ModelConfig, side: str, given: Sequence[_Tensor], expected: Sequence[TensorSignature]
) -> Iterator[ContractError]:
    known = {tensor.name: tensor for tensor in expected}
    for index, tensor in enumerate(given):
        path = f"{side}[{index}]"
        model_tensor = known.get(tensor.name)
        if model_tensor is None:
            yield ContractError(
                f"unexpected inference {side} '{tensor.name}', allowed {side}s are: {', '.join(sorted(known))}",
                field=f"{path}.name",
            )
            continue
        provided = data_type(model_tensor.datatype)
        if tensor.data_type != provided:
            yield ContractError(
                f"unable to load model '{config.name}', configuration expects datatype "
                f"{DataType.Name(tensor.data_type)} for {side} '{tensor.name}', model provides "
                f"{DataType.Name(provided)}",
                field=f"{path}.data_type",
            )
        yield from _check_shape(config, tensor, model_tensor, f"{path}.dims")


def _check_shape(config: ModelConfig, tensor: _Tensor, expected: TensorSignature, path: str) -> Iterator[ContractError]:
    shape = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else tuple(tensor.dims)
    subject = f"model '{config.name}', tensor '{tensor.name}': "
    if _is_flat(config, tensor):
        if len(expected.shape) != 1 or expected.shape[0] != -1:
            yield ContractError(
                f"{subject}requests of different shapes are joined into one dimension, so the model must take or give "
                f"the shape [-1]; but shape expected by the model is {_text(expected.shape)}",
                field=path,
            )
        return
    if config.max_batch_size > 0:
        if expected.shape[:1] != (-1,):
            yield ContractError(
                f"{subject}for the model to support batching the shape should have at least 1 dimension and the first "
                f"dimension must be -1; but shape expected by the model is {_text(expected.shape)}",
                field=path,
            )
            return
        full = (-1, *shape)
        what = (
            "(an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
            f"complete shape {_text(full)})"
        )
    else:
        full = shape
        what = f"(shape {_text(full)})"
        if expected.shape == () and full == (1,):
            return
    if not _compatible(expected.shape, full):
        yield ContractError(
            f"{subject}the model expects {len(expected.shape)} dimensions (shape {_text(expected.shape)}) but the "
            f"model configuration specifies {len(full)} dimensions {what}",
            field=path,
        )


def _is_flat(config: ModelConfig, tensor: _Tensor) -> bool:
    """Return whether the model sees all elements of a batch as one dimension, whatever the requests' shapes."""
    if isinstance(tensor, ModelInput):
        return tensor.allow_ragged_batch and config.max_batch_size > 0
    return any(tensor.name in batch_output.target_name for batch_output in config.batch_output)


def _compatible(expected: tuple[int, ...], given: tuple[int, ...]) -> bool:
    return len(expected) == len(given) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(expected, given, strict=True)
    )


def _text(shape: tuple[int, ...]) -> str:
    return f"[{','.join(str(dim) for dim in shape)}]"
