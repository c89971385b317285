"""Whether a GPU has room for another model. Pure. Source: Triton's ``--model-load-gpu-limit``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Device, DeviceKind
from serving_node.core.errors import InferenceError


def check_device_limits(
    name: str, devices: Iterable[Device], limits: Mapping[int, float], memory: Mapping[int, tuple[int, int]]
) -> None:
    """Refuse a model whose GPU is fuller than allowed.

    Args:
        name: of the model.
        devices: where its instances are to be.
        limits: by GPU, the part of its memory that may be in use when a model is loaded.
        memory: by GPU, bytes in use and in all. A GPU that does not report them is not limited.

    Raises:
        InferenceError: UNAVAILABLE with Triton's text.
    """
    for device in devices:
        if device.kind is not DeviceKind.GPU or device.index not in limits or device.index not in memory:
            continue
        used, total = memory[device.index]
        if used > total * limits[device.index]:
            raise InferenceError(
                ErrorCode.UNAVAILABLE,
                f"can not create model '{name}': memory limit set for GPU {device.index} has exceeded, model loading"
                " is rejected.",
            )
