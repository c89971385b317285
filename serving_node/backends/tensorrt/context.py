"""One execution context of an instance: a profile of the engine with the instance's memory bound to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from serving_node.backends.tensorrt.buffers import DeviceBuffer, HostBuffer
from serving_node.backends.tensorrt.cuda import Cuda, CudaError
from serving_node.backends.tensorrt.facts import EngineFacts, EngineTensor, Profile, Shape
from serving_node.backends.tensorrt.graphs import GraphPlan, Recorded
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError

log = structlog.get_logger(__name__)

Values = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies. Those that TensorRT wants on the host have no use for the device's part."""

    tensor: EngineTensor
    host: HostBuffer
    device: DeviceBuffer

    @property
    def address(self) -> int:
        """What TensorRT is told."""
        return self.host.address if self.tensor.on_host else self.device.address

    def reserve(self, shape: Shape) -> None:
        """Have room for a tensor of this shape."""
        size = self.tensor.byte_size(shape)
        self.host.reserve(size)
        if not self.tensor.on_host:
            self.device.reserve(size)


@dataclass(slots=True)
class Graph:
    """A recorded execution: its number at CUDA, and the shapes of the outputs that it writes."""

    handle: int
    outputs: dict[str, Shape]


@dataclass(slots=True)
class Run:
    """An execution that was put into the stream, and the shapes of its outputs."""

    outputs: dict[str, Shape] = field(default_factory=dict)


class Context:
    """A profile, ready to run. Used by one thread at a time, with the instance's GPU current."""

    def __init__(
        self, trt: Any, context: Any, facts: EngineFacts, profile: Profile, places: Mapping[str, Place], name: str
    ) -> None:
        self.profile = profile
        self.graphs: Recorded[Graph] = Recorded([tensor.name for tensor in facts.inputs])
        self._context = context
        self._facts = facts
        self._places = places
        self._name = name
        # outputs whose shape only the data tell -> what TensorRT said of it
        self._told: dict[str, Any] = {}
        self._trt = trt

    def reserve(self, shapes: Mapping[str, Shape], values: Values) -> None:
        """Take the memory of the largest batch, and find out which outputs have shapes that depend on data."""
        for name, shape in shapes.items():
            self._places[name].reserve(shape)
        self._describe(shapes, values)
        for tensor in self._facts.outputs:
            shape = tuple(self._context.get_tensor_shape(tensor.name))
            if -1 not in shape:
                self._places[tensor.name].reserve(shape)
            elif tensor.name not in self._told:
                allocator = self._told[tensor.name] = make_allocator(self._trt, self._places[tensor.name].device)
                self._context.set_output_allocator(tensor.name, allocator)

    @property
    def has_told_outputs(self) -> bool:
        """Whether the shape of an output depends on the data."""
        return bool(self._told)

    def enqueue(self, shapes: Mapping[str, Shape], values: Values, stream: int) -> Run:
        """Put an execution into the stream. Inputs are, or will be, in their places.

        Raises:
            InferenceError: INTERNAL with Triton's sentence.
        """
        self._describe(shapes, values)
        outputs: dict[str, Shape] = {}
        for tensor in self._facts.outputs:
            if tensor.name in self._told:
                continue
            shape = outputs[tensor.name] = tuple(self._context.get_tensor_shape(tensor.name))
            self._places[tensor.name].reserve(shape)
        self._bind()
        if not self._context.execute_async_v3(stream):
            raise InferenceError(ErrorCode.INTERNAL, f"unable to enqueue for inference {self._name}")
        for name, allocator in self._told.items():
            outputs[name] = allocator.shape
        return Run(outputs)

    def record(self, plan: GraphPlan, cuda: Cuda, stream: int) -> bool:
        """Record an execution of these shapes; False, with a line in the log, when that is not possible.

        Memory must be in its last place: ``rehearse`` sees to that.
        """
        try:
            run = self.enqueue(plan.shapes, {}, stream)  # TensorRT prepares itself outside of the recording
            cuda.synchronize(stream)
            cuda.begin_capture(stream)
            try:
                is_recorded = bool(self._context.execute_async_v3(stream))
                handle = cuda.end_capture(stream) if is_recorded else 0
            except CudaError:
                is_recorded = False
            if not is_recorded:
                cuda.abandon_capture(stream)
                raise CudaError("the execution cannot be recorded")
        except (CudaError, InferenceError) as error:
            log.warning("tensorrt.graph_not_recorded", instance=self._name, shapes=dict(plan.shapes), reason=str(error))
            return False
        self.graphs.add(plan, Graph(handle, run.outputs))
        return True

    def rehearse(self, plan: GraphPlan, cuda: Cuda, stream: int) -> bool:
        """Run what will be recorded, so that it has its memory; False, with a line in the log, when it cannot."""
        for name, shape in plan.shapes.items():
            self._places[name].reserve(shape)
        try:
            self.enqueue(plan.shapes, {}, stream)
            cuda.synchronize(stream)
        except (CudaError, InferenceError) as error:
            log.warning("tensorrt.graph_not_recorded", instance=self._name, shapes=dict(plan.shapes), reason=str(error))
            return False
        return True

    def forget_graphs(self, cuda: Cuda) -> None:
        """Free what was recorded."""
        for graph in self.graphs.graphs():
            cuda.destroy_graph(graph.handle)
        self.graphs.clear()

    def close(self, cuda: Cuda) -> None:
        """Free the graphs and the context."""
        self.forget_graphs(cuda)
        self._told.clear()
        self._context = None

    def _describe(self, shapes: Mapping[str, Shape], values: Values) -> None:
        for tensor in self._facts.inputs:
            if -1 in tensor.shape and not self._context.set_input_shape(tensor.name, shapes[tensor.name]):
                raise InferenceError(
                    ErrorCode.INTERNAL,
                    f"trt failed to set binding dimension to {list(shapes[tensor.name])} for input '{tensor.name}' for"
                    f" {self._name}",
                )
            if tensor.on_host:
                place = self._places[tensor.name]
                if tensor.name in values:
                    view = place.host.view(shapes[tensor.name], tensor.dtype)
                    view.reshape(-1)[:] = values[tensor.name]
                self._context.set_tensor_address(tensor.name, place.address)
        try:
            missing = self._context.infer_shapes()
        except RuntimeError:
            missing = ["?"]
        if missing:
            raise InferenceError(
                ErrorCode.INTERNAL,
                "failed to specify the dimensions of all input tensors or values of all input shape tensors",
            )

    def _bind(self) -> None:
        for name, place in self._places.items():
            if name not in self._told and not self._context.set_tensor_address(name, place.address):
                raise InferenceError(ErrorCode.INTERNAL, f"unable to enqueue for inference {self._name}")


def make_allocator(trt: Any, buffer: DeviceBuffer) -> Any:
    """Return what TensorRT asks for memory of an output whose shape depends on the data; ``shape`` is what it told."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: Shape = ()

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            try:
                buffer.reserve(size)
            except CudaError as error:
                log.warning("tensorrt.no_memory", output=tensor_name, size=size, reason=str(error))
                return 0  # TensorRT fails the execution
            return buffer.address

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return Allocator()
