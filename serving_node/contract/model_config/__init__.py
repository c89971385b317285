"""ModelConfig in all its forms: text, JSON, defaults, rules, and against a model's signature."""

from serving_node.contract.model_config.json_form import canonical_json, parse_json, to_json
from serving_node.contract.model_config.pbtxt import parse_pbtxt, to_pbtxt
from serving_node.contract.proto.model_config_pb2 import ModelConfig

__all__ = [
    "ModelConfig",
    "canonical_json",
    "parse_json",
    "parse_pbtxt",
    "to_json",
    "to_pbtxt",
]
