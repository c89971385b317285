"""Rules of an ensemble by itself: its steps and the flow of its tensors. The models it uses are not looked at.

Source: Triton's ``ValidateEnsembleSchedulingConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config.platforms import ENSEMBLE_PLATFORM
from serving_node.contract.proto.model_config_pb2 import ModelConfig

_STEPS = "ensemble_scheduling.step"


@dataclass(slots=True)
class _Tensor:
    """One ensemble tensor: the tensors its step needs, and those made from it."""

    name: str
    sources: list[_Tensor] = field(default_factory=list)
    targets: list[_Tensor] = field(default_factory=list)
    is_output: bool = False
    is_ready: bool = False


def ensemble_problems(config: ModelConfig) -> Iterator[ContractError]:
    """Yield the broken rules of ``ensemble_scheduling``; ``config`` as written, without defaults."""
    name = config.name
    if config.platform != ENSEMBLE_PLATFORM:
        yield ContractError(
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble", field="platform"
        )
    if config.instance_group:
        yield ContractError(f"instance group should not be specified for ensemble '{name}'", field="instance_group")
    if config.HasField("optimization"):
        yield ContractError(f"optimization should not be specified for ensemble '{name}'", field="optimization")
    if config.model_warmup:
        yield ContractError(f"model_warmup can not be specified for ensemble '{name}'", field="model_warmup")
    if not config.ensemble_scheduling.step:
        yield ContractError(f"must specify 'step' for ensemble '{name}'", field=_STEPS)
    incomplete = list(_step_problems(config))
    yield from incomplete
    tensors: dict[str, _Tensor] = {}
    yield from _build_graph(config, tensors)
    if not incomplete:
        yield from _flow_problems(config, tensors)


def _step_problems(config: ModelConfig) -> Iterator[ContractError]:
    for index, step in enumerate(config.ensemble_scheduling.step):
        for part in ("model_name", "input_map", "output_map"):
            if not getattr(step, part):
                yield ContractError(
                    f"must specify '{part}' in step {index} of ensemble '{config.name}'",
                    field=f"{_STEPS}[{index}].{part}",
                )


def _build_graph(config: ModelConfig, tensors: dict[str, _Tensor]) -> Iterator[ContractError]:
    """Fill ``tensors`` from the steps; yield each second producer of a tensor."""
    for index, step in enumerate(config.ensemble_scheduling.step):
        outputs = []
        for output in sorted(step.output_map):
            tensor = tensors.setdefault(step.output_map[output], _Tensor(step.output_map[output]))
            if tensor.is_output:
                yield ContractError(
                    f"ensemble tensor '{tensor.name}' can appear in an output map only once for ensemble "
                    f"'{config.name}' step {index}",
                    field=f"{_STEPS}[{index}].output_map[{output}]",
                )
            tensor.is_output = True
            outputs.append(tensor)
        for model_input in sorted(step.input_map):
            source = tensors.setdefault(step.input_map[model_input], _Tensor(step.input_map[model_input]))
            for tensor in outputs:
                tensor.sources.append(source)
                source.targets.append(tensor)


def _flow_problems(config: ModelConfig, tensors: dict[str, _Tensor]) -> Iterator[ContractError]:
    name = config.name
    queue = []
    for index, model_input in enumerate(config.input):
        tensor = tensors.get(model_input.name)
        if tensor is None:
            yield ContractError(
                f"ensemble input '{model_input.name}' for ensemble {name}' is not used", field=f"input[{index}]"
            )
        else:
            queue.append(tensor)
    _mark_ready(queue)
    outputs = {output.name for output in config.output}
    for index, output in enumerate(config.output):
        tensor = tensors.get(output.name)
        if tensor is None:
            yield ContractError(
                f"ensemble output '{output.name}' for ensemble {name}' is not used", field=f"output[{index}]"
            )
        elif not tensor.is_ready:
            yield ContractError(
                f"output '{output.name}' for ensemble '{name}' is not written{_missing_source(tensor)}",
                field=f"output[{index}]",
            )
    for tensor in tensors.values():
        if tensor.name not in outputs and not (tensor.is_ready and tensor.targets):
            yield ContractError(f"ensemble tensor '{tensor.name}' is unused in ensemble '{name}'", field=_STEPS)


def _mark_ready(queue: list[_Tensor]) -> None:
    """Mark the given tensors and all that follow from them; consumes ``queue``."""
    for tensor in queue:
        tensor.is_ready = True
    while queue:
        for target in queue.pop().targets:
            if not target.is_ready and all(source.is_ready for source in target.sources):
                target.is_ready = True
                queue.append(target)


def _missing_source(tensor: _Tensor) -> str:
    """Return the end of the sentence that names the tensor which nobody writes; ``""`` if there is none."""
    last = tensor
    seen: set[str] = set()  # without the tensor itself: a circle that ends there has no missing source
    while True:
        source = next((s for s in last.sources if not s.is_ready and s.name not in seen), None)
        if source is None:
            break
        seen.add(source.name)
        last = source
    if last is tensor:
        return ""
    return f": at least one of its depending tensors, '{last.name}', is not connected"
