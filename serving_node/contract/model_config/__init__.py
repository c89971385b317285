"""ModelConfig in all its forms: text, JSON, defaults, rules, and against a model's signature."""

from serving_node.contract.model_config.completion import check_signature, complete, default_config
from serving_node.contract.model_config.json_form import canonical_json, parse_json, to_json
from serving_node.contract.model_config.live_changes import fixed_part
from serving_node.contract.model_config.normalisation import normalise
from serving_node.contract.model_config.pbtxt import parse_pbtxt, to_pbtxt
from serving_node.contract.model_config.platforms import detect_backend
from serving_node.contract.model_config.validation import (
    problems,
    validate,
    validate_before_opening,
    validate_in_repository,
)
from serving_node.contract.proto.model_config_pb2 import ModelConfig

__all__ = [
    "ModelConfig",
    "canonical_json",
    "check_signature",
    "complete",
    "default_config",
    "detect_backend",
    "fixed_part",
    "normalise",
    "parse_json",
    "parse_pbtxt",
    "problems",
    "to_json",
    "to_pbtxt",
    "validate",
    "validate_before_opening",
    "validate_in_repository",
]
