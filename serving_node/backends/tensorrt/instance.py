"""One executor of an engine: a stream, a context for each of its profiles, and memory that is taken once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from serving_node.backends.tensorrt.buffers import DeviceBuffer, HostBuffer, write_rows
from serving_node.backends.tensorrt.context import Context, Place
from serving_node.backends.tensorrt.cuda import Cuda, CudaError
from serving_node.backends.tensorrt.facts import EngineFacts, EngineTensor, Profile, Shape
from serving_node.backends.tensorrt.graphs import plan
from serving_node.backends.tensorrt.profiles import check_shape, check_values, choose, largest_shapes
from serving_node.backends.tensorrt.settings import InstanceSettings, Priority
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.cuda_graphs import graph_specs
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.ragged import batch_input_arrays, join_flat, ragged_rules, scatter
from serving_node.core.request import InferenceRequest
from serving_node.core.rows import Array, split_rows
from serving_node.core.tensor import Tensor

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


@dataclass(slots=True)
class _Batch:
    """The inputs of a batch as the engine sees them: its tensors, their joint shapes, the values of shape tensors."""

    rows: int
    tensors: dict[str, list[Tensor]] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, list[int]] = field(default_factory=dict)


class EngineInstance:
    """Runs batches on an engine that instances of one GPU share."""

    def __init__(
        self,
        trt: Any,
        cuda: Cuda,
        engine: Any,
        facts: EngineFacts,
        *,
        device: int,
        profiles: Sequence[Profile],
        config: ModelConfig,
        settings: InstanceSettings,
        name: str,
    ) -> None:
        self._cuda = cuda
        self._facts = facts
        self._device = device
        self._name = name
        self._has_rows = config.max_batch_size > 0
        self._ragged = ragged_rules(config)
        self._outputs = [output.name for output in config.output]
        states = [state.output_name for state in config.sequence_batching.state]
        self._outputs += [name for name in states if name not in self._outputs]
        self._profiles = tuple(profiles)
        self._streams: list[int] = []
        self._events: list[int] = []
        self._places: dict[str, Place] = {}
        self._contexts: dict[int, Context] = {}
        try:
            self._open(trt, engine, config, settings)
        except BaseException as error:
            self.close()
            if isinstance(error, CudaError):
                raise InferenceError(
                    ErrorCode.UNAVAILABLE, f"{name} cannot be set up on GPU {device}: {error}"
                ) from error
            raise

    def execute(self, execution: Execution) -> None:
        """Run the batch. Any failure fails all of it."""
        self._cuda.set_device(self._device)
        batch = self._gather(execution)
        profile = choose(self._profiles, batch.shapes, batch.values)
        for name, shape in batch.shapes.items():
            check_shape(name, shape, profile.shapes[name], self._name)
        for name, values in batch.values.items():
            if name in profile.values:
                check_values(values, profile.values[name])
        try:
            self._execute(execution, batch, self._contexts[profile.index])
        except CudaError as error:
            raise InferenceError(ErrorCode.INTERNAL, f"unable to run inference {self._name}: {error}") from error

    def close(self) -> None:
        """Free everything that belongs to this instance alone. Idempotent."""
        if not (self._streams or self._contexts or self._places):
            return
        self._cuda.set_device(self._device)
        contexts, self._contexts = self._contexts, {}
        for context in contexts.values():
            context.close(self._cuda)
        places, self._places = self._places, {}
        for place in places.values():
            place.host.close()
            place.device.close()
        events, self._events = self._events, []
        for event in events:
            self._cuda.destroy_event(event)
        streams, self._streams = self._streams, []
        for stream in streams:
            self._cuda.destroy_stream(stream)

    # -- opening

    def _open(self, trt: Any, engine: Any, config: ModelConfig, settings: InstanceSettings) -> None:
        cuda = self._cuda
        cuda.set_device(self._device)
        least, greatest = cuda.priorities()
        priority = {Priority.MAX: greatest, Priority.MIN: least}.get(settings.priority, 0)
        self._streams = [cuda.create_stream(priority)]
        self._stream = self._copies = self._streams[0]
        if settings.output_stream:
            self._streams.append(cuda.create_stream(priority))
            self._copies = self._streams[1]
        self._events = [cuda.create_event(busy_wait=settings.busy_wait) for _ in range(2)]
        self._computed, self._copied = self._events
        for tensor in self._facts.tensors:
            pinned = settings.pinned_inputs if tensor.is_input else settings.pinned_outputs
            device = DeviceBuffer(cuda, self._forget_graphs)
            self._places[tensor.name] = Place(tensor, HostBuffer(cuda, pinned=pinned), device)
        strategy = getattr(trt.ExecutionContextAllocationStrategy, settings.allocation.value)
        for profile in self._profiles:
            made = engine.create_execution_context(strategy)
            if made is None:
                raise InferenceError(ErrorCode.INTERNAL, f"unable to create TensorRT context: {self._name}")
            if profile.index and not made.set_optimization_profile_async(profile.index, self._stream):
                raise InferenceError(
                    ErrorCode.INVALID_ARG,
                    f"Can not set the specified optimization profile {profile.index}[{profile.index}] for"
                    f" {self._name}. Expected optimization profile index range 0-{len(self._facts.profiles) - 1}",
                )
            cuda.synchronize(self._stream)
            context = Context(trt, made, self._facts, profile, self._places, self._name)
            self._contexts[profile.index] = context
            context.reserve(*largest_shapes(self._facts, profile, config))
        self._record(config)

    def _record(self, config: ModelConfig) -> None:
        """Record the graphs that the config asks for: all are rehearsed before the first, so that no memory moves."""
        rehearsed = [
            (context, planned)
            for spec in graph_specs(config)
            for context in self._contexts.values()
            if not context.has_told_outputs and (planned := plan(spec, self._facts, context.profile)) is not None
            if context.rehearse(planned, self._cuda, self._stream)
        ]
        for context, planned in rehearsed:
            if not context.graphs.has(planned):
                context.record(planned, self._cuda, self._stream)

    def _forget_graphs(self) -> None:
        """Let go of all graphs: they read and write where the memory was before."""
        for context in self._contexts.values():
            context.forget_graphs(self._cuda)

    # -- running

    def _gather(self, execution: Execution) -> _Batch:
        requests = execution.requests
        batch = _Batch(execution.rows)
        described = {} if self._ragged is None else batch_input_arrays(self._ragged.batch_inputs, requests)
        for position, first in enumerate(requests[0].inputs):
            # requests of a batch have the same inputs in the same order (batch_key, IoRules.check)
            batch.tensors[first.name] = [request.inputs[position] for request in requests]
        for tensor in self._facts.inputs:
            if tensor.name in described:
                made = Tensor.from_numpy(tensor.name, described[tensor.name], tensor.datatype)
                batch.tensors[tensor.name] = [made]
                batch.shapes[tensor.name] = made.shape
            elif tensor.name not in batch.tensors:
                raise InferenceError(
                    ErrorCode.INVALID_ARG, f"the engine of {self._name} needs input '{tensor.name}', which is missing"
                )
            else:
                self._gather_one(batch, tensor)
        return batch

    def _gather_one(self, batch: _Batch, tensor: EngineTensor) -> None:
        name, given = tensor.name, batch.tensors[tensor.name]
        if tensor.is_shape:
            # all requests of a batch have the same; the engine also takes the number of rows, in front
            values: list[int] = np.frombuffer(given[0].data, tensor.dtype).tolist()
            batch.values[name] = [batch.rows, *values] if self._has_rows else values
            batch.shapes[name] = (len(batch.values[name]),) if tensor.shape else ()
        elif self._ragged is not None and name in self._ragged.inputs:
            batch.tensors[name] = [Tensor.from_numpy(name, join_flat(given), tensor.datatype)]
            batch.shapes[name] = batch.tensors[name][0].shape
        elif self._has_rows:
            batch.shapes[name] = (batch.rows, *given[0].shape[1:])
        else:
            batch.shapes[name] = given[0].shape if tensor.shape else ()

    def _execute(self, execution: Execution, batch: _Batch, context: Context) -> None:
        cuda = self._cuda
        found = context.graphs.find(batch.shapes)
        shapes = batch.shapes if found is None else found[0].shapes
        wanted = self._wanted(execution.requests)
        try:
            self._copy_in(batch, shapes)
            execution.inputs_ready_ns = time.monotonic_ns()
            if found is None:
                outputs = context.enqueue(batch.shapes, batch.values, self._stream).outputs
            else:
                cuda.launch(found[1].handle, self._stream)
                outputs = found[1].outputs
            views = self._copy_out(wanted, outputs)
        except BaseException:
            # nothing may still write into memory that the next batch uses
            for stream in self._streams:
                cuda.synchronize(stream)
            raise
        cuda.wait(self._copied)
        execution.computed_ns = time.monotonic_ns()
        # copies: the memory belongs to the next batch as soon as this returns
        arrays = {name: view.copy() for name, view in views.items()}
        execution.results.extend(self._results(execution, batch, wanted, arrays))

    def _copy_in(self, batch: _Batch, shapes: Mapping[str, Shape]) -> None:
        for tensor in self._facts.inputs:
            if tensor.name in batch.values and tensor.on_host:
                continue  # written when the context is told its shapes
            place, shape = self._places[tensor.name], shapes[tensor.name]
            place.reserve(shape)
            target = place.host.view(shape, tensor.dtype)
            if tensor.name in batch.values:
                target.reshape(-1)[:] = batch.values[tensor.name]
            else:
                write_rows(target, batch.tensors[tensor.name], exact=shape == batch.shapes[tensor.name])
            if not tensor.on_host:
                self._cuda.copy_in(place.device.address, place.host.address, tensor.byte_size(shape), self._stream)

    def _copy_out(self, wanted: Sequence[str], shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """Put the copies of the outputs behind the execution; return where they will be."""
        cuda = self._cuda
        if self._copies != self._stream:
            cuda.record(self._computed, self._stream)
            cuda.hold(self._copies, self._computed)
        views: dict[str, Array] = {}
        for name in wanted:
            place, shape = self._places[name], shapes[name]
            size = place.tensor.byte_size(shape)
            place.host.reserve(size)
            views[name] = place.host.view(shape, place.tensor.dtype)
            if size and not place.tensor.on_host:
                cuda.copy_out(place.host.address, place.device.address, size, self._copies)
        cuda.record(self._copied, self._copies)
        return views

    def _wanted(self, requests: Sequence[InferenceRequest]) -> list[str]:
        """Return the outputs that at least one request asks for, in the config's order."""
        if any(not request.outputs for request in requests):
            return self._outputs
        wanted = {output.name for request in requests for output in request.outputs}
        return [name for name in self._outputs if name in wanted]

    def _results(
        self, execution: Execution, batch: _Batch, wanted: Sequence[str], arrays: Mapping[str, Array]
    ) -> list[list[Tensor]]:
        requests = execution.requests
        columns = [self._column(requests, batch, name, arrays[name]) for name in wanted]
        results: list[list[Tensor]] = []
        for request, tensors in zip(requests, zip(*columns, strict=True), strict=True):
            names = {output.name for output in request.outputs}
            results.append([tensor for tensor in tensors if not names or tensor.name in names])
        return results

    def _column(self, requests: Sequence[InferenceRequest], batch: _Batch, name: str, array: Array) -> list[Tensor]:
        """Return one output of every request."""
        tensor = self._places[name].tensor
        if not self._has_rows:
            return [Tensor.from_numpy(name, array if array.ndim else array.reshape(1), tensor.datatype)]
        counts = [request.batch_size for request in requests]
        if self._ragged is not None and name in self._ragged.scattered:
            return scatter(name, tensor.datatype, array, self._ragged.scattered[name], requests)
        if tensor.is_shape:
            if not array.size or array.reshape(-1)[0] != batch.rows:
                raise InferenceError(
                    ErrorCode.INTERNAL, f"failed to retrieve the output shape values from binding '{self._name}'"
                )
            array = np.broadcast_to(array.reshape(-1)[1:], (batch.rows, array.size - 1))
        # a graph that was recorded for more rows gives more than there are
        return split_rows(name, tensor.datatype, array[: batch.rows] if array.ndim else array, counts)
