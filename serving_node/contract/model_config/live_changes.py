"""Which parts of a config a node changes while the model serves, without loading it again. Pure.

Source: Triton, "Model Management": only changes of the instance groups are applied without a reload.
"""

from __future__ import annotations

from serving_node.contract.proto.model_config_pb2 import ModelConfig


def fixed_part(config: ModelConfig) -> bytes:
    """Return a config without what changes in place, as bytes: equal for configs that need no reload in between.

    Compare configs that were normalised alike.
    """
    fixed = ModelConfig()
    fixed.CopyFrom(config)
    # How many instances run, and which versions are wanted: both are seen to while requests flow.
    fixed.ClearField("instance_group")
    fixed.ClearField("version_policy")
    return fixed.SerializeToString(deterministic=True)
