"""An ensemble and the models that it is made of: whether they fit, and whether responses multiply on the way.

Source: Triton core, ensemble_utils.cc (ValidateEnsembleConfig).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from serving_node.contract.errors import ContractError
from serving_node.contract.proto.model_config_pb2 import DataType, ModelConfig, ModelEnsembling, ModelInput, ModelOutput


@dataclass(slots=True, eq=False)
class _Node:
    """One tensor of the ensemble as the model sees it that named it first. ``source`` is the step that makes it."""

    model: str
    data_type: DataType.ValueType
    dims: tuple[int, ...]
    full_dims: tuple[int, ...]
    before: list[_Node] = field(default_factory=list)
    after: list[_Node] = field(default_factory=list)
    source: int = -1
    is_decoupled: bool = False
    is_visited: bool = False
    flow: int = 0


def link_ensemble(config: ModelConfig, models: Sequence[ModelConfig]) -> ModelConfig:
    """Return a copy of an ensemble's config that says whether it is decoupled.

    Args:
        config: of the ensemble, valid by itself.
        models: the completed configs of the models of its steps, in the order of the steps.

    Raises:
        ContractError: the ensemble does not fit a model, with Triton's sentence.
    """
    nodes: dict[str, _Node] = {}
    own: list[ModelInput | ModelOutput] = [*config.input, *config.output]
    for tensor in own:
        dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
        nodes.setdefault(tensor.name, _node(config, tensor, dims))
    for index in range(len(config.ensemble_scheduling.step)):
        _link_step(config, index, models[index], nodes)
    result = ModelConfig()
    result.CopyFrom(config)
    result.model_transaction_policy.decoupled = _flows(config, nodes) > 0
    return result


def _node(model: ModelConfig, tensor: ModelInput | ModelOutput, dims: Sequence[int]) -> _Node:
    rows = (-1,) if model.max_batch_size > 0 else ()
    return _Node(model.name, tensor.data_type, tuple(dims), rows + tuple(dims))


def _link_step(config: ModelConfig, index: int, model: ModelConfig, nodes: dict[str, _Node]) -> None:
    step = config.ensemble_scheduling.step[index]
    if 0 != model.max_batch_size < config.max_batch_size:
        raise ContractError(
            f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but it contains model "
            f"{step.model_name} which only allows maximum batch size to be {model.max_batch_size}"
        )
    _link_inputs(config, step, model, nodes)
    outputs = {tensor.name: tensor for tensor in model.output}
    for name in sorted(step.output_map):
        if name not in outputs:
            raise ContractError(
                f"in ensemble {config.name}, ensemble tensor {step.output_map[name]} is mapped from non-existing "
                f"output {name} in model {step.model_name}"
            )
    for name in sorted(step.output_map):
        node = _joined(config, nodes, step.output_map[name], _node(model, outputs[name], outputs[name].dims))
        node.source = index
        node.is_decoupled = model.model_transaction_policy.decoupled
        for source in step.input_map.values():
            node.before.append(nodes[source])
            nodes[source].after.append(node)


def _link_inputs(config: ModelConfig, step: ModelEnsembling.Step, model: ModelConfig, nodes: dict[str, _Node]) -> None:
    known = {tensor.name for tensor in model.input}
    for name in sorted(step.input_map):
        if name not in known:
            raise ContractError(
                f"in ensemble {config.name}, ensemble tensor {step.input_map[name]} is mapping to non-existing input "
                f"{name} in model {step.model_name}"
            )
    for tensor in model.input:
        if tensor.name in step.input_map:
            _joined(config, nodes, step.input_map[tensor.name], _node(model, tensor, tensor.dims))
        elif not tensor.optional:
            raise ContractError(
                f"in ensemble {config.name}, input {tensor.name} in model {step.model_name} is not mapped to any "
                "ensemble tensors"
            )


def _joined(config: ModelConfig, nodes: dict[str, _Node], name: str, seen: _Node) -> _Node:
    """Return the node of a tensor, new or checked against how another model sees it."""
    known = nodes.setdefault(name, seen)
    where = f"in ensemble {config.name}, ensemble tensor {name}: "
    if known.data_type != seen.data_type:
        raise ContractError(
            f"{where}inconsistent data type: {DataType.Name(known.data_type)} is inferred from model {known.model} "
            f"while {DataType.Name(seen.data_type)} is inferred from model {seen.model}"
        )
    # a model without batches may have the batch dimension among its own
    if not _alike(known.dims, seen.dims) and not _alike(known.full_dims, seen.full_dims):
        raise ContractError(
            f"{where}inconsistent shape: {_text(known.full_dims)} is inferred from model {known.model} while "
            f"{_text(seen.full_dims)} is inferred from model {seen.model}"
        )
    return known


def _flows(config: ModelConfig, nodes: dict[str, _Node]) -> int:
    """Return how many steps multiply responses. Tensors of different such steps may not meet."""
    sink = _Node(config.name, DataType.TYPE_INVALID, (), ())  # where the outputs meet
    for tensor in config.output:
        sink.before.append(nodes[tensor.name])
        nodes[tensor.name].after.append(sink)
    flows: dict[int, int] = {}
    count = 0
    waiting = deque(nodes[tensor.name] for tensor in config.input)
    for node in waiting:
        node.is_visited = True
    while waiting:
        for node in waiting.popleft().after:
            if node.is_visited or not all(before.is_visited for before in node.before):
                continue
            flow = _common_flow(config, node)
            if node.source >= 0 and node.source in flows:
                flow = flows[node.source]
            elif node.is_decoupled:
                count += 1
                flow = count
            flows[node.source] = node.flow = flow
            node.is_visited = True
            waiting.append(node)
    return count


def _common_flow(config: ModelConfig, node: _Node) -> int:
    flow = node.before[0].flow
    if any(before.flow != flow for before in node.before):
        raise ContractError(
            f"in ensemble {config.name}, step of model '{node.model}' receives inputs originated from different "
            "decoupled models"
        )
    return flow


def _alike(one: Iterable[int], other: Iterable[int]) -> bool:
    one, other = tuple(one), tuple(other)
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _text(dims: Iterable[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
