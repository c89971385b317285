"""The one request type and the one response type under every protocol.

A request is plain data plus one callback, so that frontends could run in another process later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor
from serving_node.core.trace import RequestTrace

Parameter = bool | int | float | str


class Lease(Protocol):
    """Memory of the caller's that a request reads its inputs from, or has outputs written to."""

    def store(self, tensor: Tensor) -> bool:
        """Write an output where the caller wants it; False when that is the response. Raises InferenceError."""

    def release(self) -> None:
        """Give the memory back. Idempotent."""


@dataclass(slots=True)
class RequestedOutput:
    """One output that the caller asks for. ``parameters`` are left to the frontend (binary_data, classification...)."""

    name: str
    parameters: dict[str, Parameter] = field(default_factory=dict)


@dataclass(slots=True)
class Timing:
    """Where the time of a request went, in nanoseconds."""

    queue_ns: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0


@dataclass(slots=True)
class InferenceResponse:
    """One answer. With ``error`` set, ``outputs`` is empty.

    ``flag_only`` marks a final answer that carries nothing but the end: the model gave no response with it.
    """

    model_name: str
    model_version: str
    id: str = ""
    outputs: list[Tensor] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    error: InferenceError | None = None
    final: bool = True
    flag_only: bool = False
    timing: Timing | None = None


@dataclass(slots=True)
class InferenceRequest:
    """One inference request, from any protocol.

    Units: ``timeout_us`` microseconds in the queue (Triton's request parameter); ``arrival_ns`` and
    ``deadline_ns`` monotonic nanoseconds, ``deadline_ns`` 0 meaning none.
    Ownership: after ``DataPlane.infer`` returns, the scheduler owns the request until it has called
    ``on_response`` with ``final=True`` exactly once.
    Concurrency: ``on_response`` is always called on the event loop's thread.
    """

    model_name: str
    model_version: str
    inputs: list[Tensor]
    on_response: Callable[[InferenceResponse], None]
    id: str = ""
    outputs: list[RequestedOutput] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    priority: int = 0
    timeout_us: int = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    arrival_ns: int = 0
    deadline_ns: int = 0
    sticky_key: str = ""
    # The sentence with which a protocol that has one response for each request refuses decoupled models; empty when
    # the caller takes any number of responses.
    refuse_decoupled: str = ""
    # Set by the dataplane: the model gives any number of responses to this request.
    decoupled: bool = False
    # Where to note what happens when, for requests that are traced.
    trace: RequestTrace | None = None
    # Set by frontends for requests that use shared memory; they release it when the final response is out.
    lease: Lease | None = None
    # Asks for one unit of the model, past its routes; only the admin frontend sets it.
    unit: str = ""
    # Made by another model for a request that runs: taken also while the node drains.
    inner: bool = False
    # Filled by the dataplane: rows of the batch dimension, 1 when the model has none; and what must be equal
    # for two requests to share a batch (shapes without rows, set of inputs).
    batch_size: int = 1
    batch_key: Hashable = None
    # The same object in two requests: their inputs have the same names, types, shapes and sizes, and the same outputs
    # are wanted. Frontends may set it; the dataplane replaces it. It holds while ``inputs`` is ``alike_inputs``.
    alike: object | None = None
    alike_inputs: list[Tensor] | None = None
    # The scheduler's own bookkeeping (scheduling.queue), here so that queueing allocates nothing.
    queued_ns: int = 0
    queue_deadline_ns: int = 0
    queue_state: int = 0
    # Responses so far of a request that is answered apart from its batch; the statistics count them.
    responses: int = 0
    # Set by ``cancel``; schedulers drop a cancelled request while it is queued.
    cancelled: bool = False
    on_cancel: Callable[[InferenceRequest], None] | None = None

    def cancel(self) -> None:
        """The caller has left or its deadline has passed. Idempotent; never pre-empts a running batch."""
        if not self.cancelled:
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel(self)
