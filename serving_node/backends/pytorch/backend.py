"""The PyTorch backend. PyTorch itself is imported with the first model, because that takes a second or two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from serving_node.backends.pytorch.formats import find_model
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.inner_calls import InnerCalls

if TYPE_CHECKING:
    from serving_node.backends.pytorch.model import TorchModel


class PyTorchBackend:
    """Opens what PyTorch saves, and modules from a Python file. All of it is code."""

    name = "pytorch"

    def open_model(self, source: ModelSource) -> TorchModel:
        """Load a version's file.

        Raises:
            InferenceError: INVALID_ARG with the reason in one sentence; UNSUPPORTED when PyTorch is not installed.
        """
        path, kind = find_model(source)
        try:
            from serving_node.backends.pytorch.model import TorchModel
        except ImportError as error:
            raise InferenceError(
                ErrorCode.UNSUPPORTED, f"backend 'pytorch' is not installed on this node: {error}"
            ) from error
        return TorchModel(source, path, kind)


def backend(options: Mapping[str, str], calls: InnerCalls) -> PyTorchBackend:
    """Return the backend."""
    return PyTorchBackend()
