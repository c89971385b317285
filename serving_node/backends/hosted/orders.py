"""What a node and a hosting worker say to each other beside batches. Pure.

The first two sockets of a worker are its door. On the one the node orders START (open a version), COMPLETE (let the
model complete a config) and FINALIZE; on the other it passes the two sockets and the flags of each instance that it
wants. What an instance is to be is ordered with START on its own first socket.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.backend import Device, DeviceKind, ModelSource
from serving_node.core.errors import InferenceError

CONNECTION_FDS = 3


def said_config(config: ModelConfig) -> str:
    """Return a config as text, every field of it."""
    return base64.b64encode(config.SerializeToString()).decode()


def read_config(text: str) -> ModelConfig:
    """Return the config of ``said_config``."""
    config = ModelConfig()
    config.ParseFromString(base64.b64decode(text))
    return config


def said_device(device: Device) -> list[Any]:
    """Return a device; the host policy stays behind, as it was applied to the process."""
    return [device.kind.value, device.index]


def read_device(said: Any) -> Device:
    """Return the device of ``said_device``."""
    kind, index = said
    return Device(DeviceKind(kind), index)


def said_source(source: ModelSource) -> dict[str, Any]:
    """Return what a worker needs to open a version."""
    return {
        "name": source.name,
        "version": source.version,
        "directory": str(source.directory),
        "config": said_config(source.config),
        "devices": [said_device(device) for device in source.devices],
    }


def read_source(said: Mapping[str, Any]) -> ModelSource:
    """Return the source of ``said_source``, for a worker."""
    return ModelSource(
        name=said["name"],
        version=said["version"],
        directory=Path(said["directory"]),
        config=read_config(said["config"]),
        devices=tuple(map(read_device, said["devices"])),
        in_worker=True,
    )


def said_error(error: BaseException) -> list[str]:
    """Return an error as code and sentence; what is no ``InferenceError`` is INTERNAL."""
    if isinstance(error, InferenceError):
        return [error.code.value, error.message]
    return [ErrorCode.INTERNAL.value, f"{type(error).__name__}: {error}"]


def check_error(said: Any) -> None:
    """Raise the error of ``said_error``, if it is one. Raises WireError when it makes no sense."""
    if said is None:
        return
    try:
        code, text = said
        error = InferenceError(ErrorCode(code), str(text))
    except (TypeError, ValueError) as failure:
        raise WireError("an error that makes no sense") from failure
    raise error
