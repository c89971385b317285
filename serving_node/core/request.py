"""The one request type and the one response type under every protocol.

A request is plain data plus one callback, so that frontends could run in another process later. Their classes are
written out, not made by ``dataclass``: one of each is made for every request, and when the node is compiled only a
constructor that is written out is compiled too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
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


class RequestedOutput:
    """One output that the caller asks for. ``parameters`` are left to the frontend (binary_data, classification...)."""

    __slots__ = ("name", "parameters")

    def __init__(self, name: str, parameters: dict[str, Parameter] | None = None) -> None:
        self.name = name
        self.parameters = {} if parameters is None else parameters

    def __reduce__(self) -> tuple[type[RequestedOutput], tuple[str, dict[str, Parameter]]]:
        """Travel between processes: a compiled class does not by itself."""
        return RequestedOutput, (self.name, self.parameters)


class Timing:
    """Where the time of a request went, in nanoseconds."""

    __slots__ = ("compute_infer_ns", "compute_input_ns", "compute_output_ns", "queue_ns")

    def __init__(
        self, queue_ns: int = 0, compute_input_ns: int = 0, compute_infer_ns: int = 0, compute_output_ns: int = 0
    ) -> None:
        self.queue_ns = queue_ns
        self.compute_input_ns = compute_input_ns
        self.compute_infer_ns = compute_infer_ns
        self.compute_output_ns = compute_output_ns


class InferenceResponse:
    """One answer. With ``error`` set, ``outputs`` is empty.

    ``flag_only`` marks a final answer that carries nothing but the end: the model gave no response with it.
    """

    __slots__ = (
        "error",
        "final",
        "flag_only",
        "id",
        "model_name",
        "model_version",
        "outputs",
        "parameters",
        "timing",
    )

    def __init__(
        self,
        model_name: str,
        model_version: str,
        id: str = "",
        outputs: list[Tensor] | None = None,
        parameters: dict[str, Parameter] | None = None,
        error: InferenceError | None = None,
        final: bool = True,
        flag_only: bool = False,
        timing: Timing | None = None,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.id = id
        self.outputs = [] if outputs is None else outputs
        self.parameters = {} if parameters is None else parameters
        self.error = error
        self.final = final
        self.flag_only = flag_only
        self.timing = timing


class InferenceRequest:
    """One inference request, from any protocol.

    Units: ``timeout_us`` microseconds in the queue (Triton's request parameter); ``arrival_ns`` and
    ``deadline_ns`` monotonic nanoseconds, ``deadline_ns`` 0 meaning none.
    Ownership: after ``DataPlane.infer`` returns, the scheduler owns the request until it has called
    ``on_response`` with ``final=True`` exactly once.
    Concurrency: ``on_response`` is always called on the event loop's thread.
    """

    __slots__ = (
        "alike",
        "alike_inputs",
        "arrival_ns",
        "batch_key",
        "batch_size",
        "cancelled",
        "deadline_ns",
        "decoupled",
        "id",
        "inner",
        "inputs",
        "lease",
        "model_name",
        "model_version",
        "on_cancel",
        "on_response",
        "outputs",
        "parameters",
        "priority",
        "queue_deadline_ns",
        "queue_state",
        "queued_ns",
        "refuse_decoupled",
        "responses",
        "sequence_end",
        "sequence_id",
        "sequence_start",
        "sticky_key",
        "timeout_us",
        "trace",
        "unit",
    )

    def __init__(
        self,
        model_name: str,
        model_version: str,
        inputs: list[Tensor],
        on_response: Callable[[InferenceResponse], None],
        id: str = "",
        outputs: list[RequestedOutput] | None = None,
        parameters: dict[str, Parameter] | None = None,
        priority: int = 0,
        timeout_us: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        arrival_ns: int = 0,
        deadline_ns: int = 0,
        sticky_key: str = "",
        refuse_decoupled: str = "",
        trace: RequestTrace | None = None,
        lease: Lease | None = None,
        unit: str = "",
        inner: bool = False,
        batch_size: int = 1,
        batch_key: Hashable = None,
        queued_ns: int = 0,
    ) -> None:
        self.model_name = model_name
        self.model_version = model_version
        self.inputs = inputs
        self.on_response = on_response
        self.id = id
        self.outputs = [] if outputs is None else outputs
        self.parameters = {} if parameters is None else parameters
        self.priority = priority
        self.timeout_us = timeout_us
        self.sequence_id = sequence_id
        self.sequence_start = sequence_start
        self.sequence_end = sequence_end
        self.arrival_ns = arrival_ns
        self.deadline_ns = deadline_ns
        self.sticky_key = sticky_key
        # The sentence with which a protocol that has one response for each request refuses decoupled models; empty
        # when the caller takes any number of responses.
        self.refuse_decoupled = refuse_decoupled
        # Set by the dataplane: the model gives any number of responses to this request.
        self.decoupled = False
        # Where to note what happens when, for requests that are traced.
        self.trace = trace
        # Set by frontends for requests that use shared memory; they release it when the final response is out.
        self.lease = lease
        # Asks for one unit of the model, past its routes; only the admin frontend sets it.
        self.unit = unit
        # Made by another model for a request that runs: taken also while the node drains.
        self.inner = inner
        # Filled by the dataplane: rows of the batch dimension, 1 when the model has none; and what must be equal
        # for two requests to share a batch (shapes without rows, set of inputs).
        self.batch_size = batch_size
        self.batch_key = batch_key
        # The same object in two requests: their inputs have the same names, types, shapes and sizes, and the same
        # outputs are wanted. Frontends may set it; the dataplane replaces it. It holds while ``inputs`` is
        # ``alike_inputs``.
        self.alike: object | None = None
        self.alike_inputs: list[Tensor] | None = None
        # The scheduler's own bookkeeping (scheduling.queue), here so that queueing allocates nothing.
        self.queued_ns = queued_ns
        self.queue_deadline_ns = 0
        self.queue_state = 0
        # Responses so far of a request that is answered apart from its batch; the statistics count them.
        self.responses = 0
        # Set by ``cancel``; schedulers drop a cancelled request while it is queued.
        self.cancelled = False
        self.on_cancel: Callable[[InferenceRequest], None] | None = None

    def cancel(self) -> None:
        """The caller has left or its deadline has passed. Idempotent; never pre-empts a running batch."""
        if not self.cancelled:
            self.cancelled = True
            if self.on_cancel is not None:
                self.on_cancel(self)
