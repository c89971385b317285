"""The host policies of a node by name, and which of them an instance has. Pure. Source: Triton's ``--host-policy``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelInstanceGroup
from serving_node.core.errors import InferenceError
from serving_node.core.host_policy import ANYWHERE, HostPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = ("numa-node", "cpu-cores")


class HostPolicies:
    """What ``--host-policy`` said: name, setting and value, a later one over an earlier one."""

    def __init__(self, given: Iterable[tuple[str, str, str]] = ()) -> None:
        self._by_name: dict[str, dict[str, str]] = {}
        for name, setting, value in given:
            self._by_name.setdefault(name, {})[setting] = value

    def of(self, group: ModelInstanceGroup, gpu: int | None) -> HostPolicy:
        """Return the policy of an instance of ``group``, on a GPU or not; nobody need have said anything about it.

        A group that names none has that of its kind: cpu, model or gpu_<number>.

        Raises:
            InferenceError: INVALID_ARG with Triton's text, a value makes no sense.
        """
        name = group.host_policy
        if not name and gpu is not None:
            name = f"gpu_{gpu}"
        elif not name:
            name = "model" if group.kind == ModelInstanceGroup.KIND_MODEL else "cpu"
        settings = self._by_name.get(name)
        return ANYWHERE if settings is None else _read(settings)


def _read(settings: Mapping[str, str]) -> HostPolicy:
    cores = None
    if "cpu-cores" in settings:
        first, dash, last = settings["cpu-cores"].partition("-")
        if not dash:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                "host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got"
                f" {settings['cpu-cores']}",
            )
        cores = (_number("cpu-cores", first), _number("cpu-cores", last))
    node = _number("numa-node", settings["numa-node"]) if "numa-node" in settings else None
    return HostPolicy(cores, node)


def _number(setting: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        sentence = f"Parsing '{setting}' value: Can't parse '{text}' to integer"
        raise InferenceError(ErrorCode.INVALID_ARG, sentence) from None
