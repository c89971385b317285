"""Which of the driver's GPUs CUDA shows to this process, and in which order.

NVML knows all GPUs of the machine in the order of their places on the bus; CUDA renumbers what CUDA_VISIBLE_DEVICES
names. Numbers of GPUs in configs are CUDA's, so readings must be by them too.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence

_ORDER = "CUDA_DEVICE_ORDER"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def number_by_bus(environment: MutableMapping[str, str] | None = None) -> None:
    """Let CUDA number GPUs as NVML does, unless somebody chose otherwise. Call before the first use of CUDA."""
    variables = os.environ if environment is None else environment  # noqa: TID251  # CUDA itself reads it there
    variables.setdefault(_ORDER, "PCI_BUS_ID")


def named_gpus() -> str | None:
    """Return what CUDA_VISIBLE_DEVICES says in this process, None when it is not set."""
    return os.environ.get(_VISIBLE)  # noqa: TID251  # CUDA itself reads it there


def visible_gpus(uuids: Sequence[str], named: str | None) -> list[int]:
    """Return the driver's numbers of the GPUs that CUDA shows, in CUDA's order.

    ``named`` holds numbers or beginnings of UUIDs; as for CUDA, nothing behind one that is no GPU counts. Parts of GPUs
    (MIG) have no numbers of their own here: all GPUs are returned then.
    """
    if named is None or "MIG-" in named:
        return list(range(len(uuids)))
    found: list[int] = []
    for text in named.split(","):
        number = _number(uuids, text.strip())
        if number is None or number in found:
            break
        found.append(number)
    return found


def _number(uuids: Sequence[str], text: str) -> int | None:
    if text.isdecimal():
        number = int(text)
        return number if number < len(uuids) else None
    fitting = [index for index, uuid in enumerate(uuids) if text.startswith("GPU-") and uuid.startswith(text)]
    return fitting[0] if len(fitting) == 1 else None
