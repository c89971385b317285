"""What the ``auto_complete_config`` of a Python model may change in its config.

Source: Triton core, backend_model.cc (TritonModel::UpdateModelConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving_node.contract.errors import ContractError
from serving_node.contract.model_config.json_form import parse_json
from serving_node.contract.proto.model_config_pb2 import ModelConfig


def complete_from_model(config: ModelConfig, returned: Mapping[str, Any], model_name: str) -> ModelConfig:
    """Return a copy of ``config`` with what the model's own code filled in.

    Taken over are ``max_batch_size``, ``input``, ``output``, the scheduler if the config has none, and whether the
    model is decoupled. Everything else that the code changed is left as the config says.

    Args:
        config: as read, perhaps normalised.
        returned: the config that the code returned, as the config endpoint shows configs.
        model_name: for the texts of errors.

    Raises:
        ContractError: what was returned is no config, or has another scheduler than the config.
    """
    updated = parse_json(dict(returned))
    result = ModelConfig()
    result.CopyFrom(config)
    result.name = result.name or model_name
    result.max_batch_size = updated.max_batch_size
    del result.input[:]
    result.input.extend(updated.input)
    del result.output[:]
    result.output.extend(updated.output)
    chosen, wanted = result.WhichOneof("scheduling_choice"), updated.WhichOneof("scheduling_choice")
    if chosen is None and wanted is not None:
        getattr(result, wanted).CopyFrom(getattr(updated, wanted))
    elif chosen != wanted:
        number = _number(result)
        raise ContractError(f"Cannot update scheduling choice from {number} to {number} when auto-completing.")
    if updated.HasField("model_transaction_policy"):
        result.model_transaction_policy.decoupled = updated.model_transaction_policy.decoupled
    return result


def _number(config: ModelConfig) -> int:
    chosen = config.WhichOneof("scheduling_choice")
    return 0 if chosen is None else ModelConfig.DESCRIPTOR.fields_by_name[chosen].number
