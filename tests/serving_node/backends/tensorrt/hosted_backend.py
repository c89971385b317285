"""The TensorRT backend on the double, as a worker process makes it."""

from __future__ import annotations

from collections.abc import Mapping

from serving_node.backends.tensorrt.backend import TensorRtBackend
from serving_node.core.inner_calls import InnerCalls
from tests.serving_node.backends.tensorrt import fake_tensorrt


def backend(options: Mapping[str, str], calls: InnerCalls) -> TensorRtBackend:
    return TensorRtBackend(fake_tensorrt, fake_tensorrt.CUDA, options)
