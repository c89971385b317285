"""What the parts on a request's way tell to whoever traces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serving_node.core.tensor import Tensor


class RequestTrace(Protocol):
    """The trace of one request. Safe to call on the event loop only."""

    def mark(self, activity: str, ns: int) -> None:
        """Note that ``activity`` (Triton's name, such as QUEUE_START) happened at ``ns``, monotonic nanoseconds."""

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        """Note tensors at TENSOR_QUEUE_INPUT or TENSOR_BACKEND_OUTPUT, when tensors are traced at all."""

    def context(self) -> str:
        """Return the trace context to hand to a model as JSON text of W3C headers, empty without one."""

    def end(self, ns: int) -> None:
        """Note that the request has been answered."""
