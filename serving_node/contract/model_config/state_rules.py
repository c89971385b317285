"""Rules of the tensors that a node feeds to models with sequences: states and controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from serving_node.contract.errors import ContractError
from serving_node.contract.proto import model_config_pb2 as pb
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInput, ModelOutput, ModelSequenceBatching

_State = ModelSequenceBatching.State
_Control = ModelSequenceBatching.Control


def control_inputs(config: ModelConfig) -> list[ModelInput]:
    """Return the control inputs as inputs of the model."""
    inputs: list[ModelInput] = []
    for control_input in config.sequence_batching.control_input:
        for control in control_input.control[:1]:
            inputs.append(ModelInput(name=control_input.name, data_type=_control_type(control), dims=[1]))
    return inputs


def state_inputs(config: ModelConfig) -> list[ModelInput]:
    """Return the states as inputs of the model."""
    states = config.sequence_batching.state
    return [ModelInput(name=state.input_name, data_type=state.data_type, dims=state.dims) for state in states]


def state_outputs(config: ModelConfig) -> list[ModelOutput]:
    """Return the states as outputs of the model."""
    states = config.sequence_batching.state
    return [ModelOutput(name=state.output_name, data_type=state.data_type, dims=state.dims) for state in states]


def state_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield the broken rules of states and names of controls. Those of first states are Triton's, the others ours."""
    given = {tensor.name for tensor in config.input}
    for index, control_input in enumerate(config.sequence_batching.control_input):
        if control_input.name in given:
            sentence = f"control '{control_input.name}' of model '{config.name}' is the name of another input"
            yield ContractError(f"sequence batching {sentence}", field=f"sequence_batching.control_input[{index}].name")
    states = config.sequence_batching.state
    if states and config.model_transaction_policy.decoupled:
        yield ContractError(
            f"the states of model '{config.name}' need one response for each request, and it is decoupled",
            field="sequence_batching.state",
        )
    inputs = {tensor.name for tensor in (*config.input, *control_inputs(config))}
    counts = Counter(name for state in states for name in (f"<{state.input_name}", f">{state.output_name}"))
    for index, state in enumerate(states):
        field = f"sequence_batching.state[{index}]"
        if not state.input_name or not state.output_name:
            yield ContractError(
                f"a state of model '{config.name}' must have 'input_name' and 'output_name'", field=field
            )
        elif state.input_name in inputs or counts[f"<{state.input_name}"] > 1 or counts[f">{state.output_name}"] > 1:
            yield ContractError(
                f"state '{state.input_name}' of model '{config.name}' is the name of another input or state",
                field=field,
            )
        elif state.data_type == pb.TYPE_INVALID:
            yield ContractError(
                f"state '{state.input_name}' of model '{config.name}' must have a 'data_type'", field=field
            )
        elif not state.dims or any(dim < -1 for dim in state.dims):
            yield ContractError(f"state '{state.input_name}' of model '{config.name}' must have 'dims'", field=field)
        else:
            yield from _initial_problems(state, field)


def _initial_problems(state: _State, field: str) -> Iterator[ContractError]:
    name = state.input_name
    if len(state.initial_state) > 1:
        yield ContractError(
            f"initial_state field for state input '{name}' must contain exactly one or zero element. Found"
            f" '{len(state.initial_state)}' elements.",
            field=f"{field}.initial_state",
        )
        return
    for initial in state.initial_state:
        if not initial.name:
            sentence = f"Field 'name' must be set when using initial_state for state input '{name}'."
        elif initial.data_type != state.data_type:
            sentence = (
                f"The data type used for 'initial_state' field of state '{name}' does not match the state data type."
            )
        elif len(initial.dims) != len(state.dims):
            sentence = (
                f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input"
                f" '{name}'. {len(initial.dims)} != {len(state.dims)}"
            )
        else:
            sentence = _initial_sentence(state, initial)
        if sentence:
            yield ContractError(sentence, field=f"{field}.initial_state[0]")


def _initial_sentence(state: _State, initial: ModelSequenceBatching.InitialState) -> str:
    name = state.input_name
    if any(dim < 0 for dim in initial.dims):
        return f"'initial_state' field for state input name '{name}' contains variable dimensions."
    for given, expected in zip(initial.dims, state.dims, strict=True):
        if expected not in (-1, given):
            what = f"'initial_state' dim for input name '{name}'"
            return f"{what} doesn't match 'state' dim description. {given} != {expected}"
    if initial.WhichOneof("state_data") is None:
        return f"initial_state setting expects state'{name}' to have state_data set"
    return ""


def _control_type(control: _Control) -> pb.DataType.ValueType:
    if control.kind == _Control.CONTROL_SEQUENCE_CORRID:
        return control.data_type
    if control.int32_false_true:
        return pb.TYPE_INT32
    return pb.TYPE_FP32 if control.fp32_false_true else pb.TYPE_BOOL
