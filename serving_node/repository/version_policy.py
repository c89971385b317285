"""Which versions of a model are served. Pure."""

from __future__ import annotations

from collections.abc import Collection

from serving_node.contract.proto import model_config_pb2


def select_versions(policy: model_config_pb2.ModelVersionPolicy, available: Collection[int]) -> list[int]:
    """Return the versions of ``available`` that ``policy`` asks for, ascending. No policy means the latest one."""
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return sorted(available)
    if choice == "specific":
        return sorted(set(policy.specific.versions) & set(available))
    count = int(policy.latest.num_versions) if choice == "latest" else 1
    return sorted(available)[-max(count, 1) :]
