from __future__ import annotations

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import Device, DeviceKind
from serving_node.core.errors import InferenceError
from serving_node.scheduling.device_limits import check_device_limits

GPUS = [Device(DeviceKind.GPU, 0), Device(DeviceKind.GPU, 1)]
GIB = 1024**3


def test_gpu_that_is_too_full_takes_no_model() -> None:
    memory = {0: (4 * GIB, 10 * GIB), 1: (6 * GIB, 10 * GIB)}
    check_device_limits("m", GPUS, {0: 0.4}, memory)
    with pytest.raises(InferenceError, match="limit set for GPU 1 has exceeded, model loading is rejected") as caught:
        check_device_limits("m", GPUS, {0: 0.4, 1: 0.5}, memory)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    check_device_limits("m", [Device()], {0: 0.0}, memory)
    check_device_limits("m", GPUS, {0: 0.0}, {})
