"""What the parts on a request's way tell to whoever traces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serving_node.core.tensor import Tensor


class RequestTrace(Protocol):
    """The trace of one request. Called on the event loop only; times are monotonic nanoseconds.

    Two parts hold it: the frontend until it has sent the last answer (``finish``) and, from ``begin`` on, whoever
    owns the request (``end``). It is written when both are through.
    """

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        """Note REQUEST_START: the request is valid and this version takes it."""

    def mark(self, activity: str, ns: int) -> None:
        """Note that ``activity`` (Triton's name, such as QUEUE_START) happened."""

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        """Note tensors at TENSOR_QUEUE_INPUT or TENSOR_BACKEND_OUTPUT, when tensors are traced at all.

        Their bytes are copied: the caller may reuse the memory.
        """

    def context(self) -> str:
        """Return the trace context to hand to a model, JSON text of W3C headers; empty without one."""

    def end(self, ns: int) -> None:
        """Note REQUEST_END: the model is done with the request. Idempotent."""

    def child(self) -> RequestTrace:
        """Return the trace of a request that is made for this one; whoever makes it calls ``finish``."""

    def finish(self) -> None:
        """The frontend has nothing more to note. Idempotent."""
