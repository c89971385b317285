"""The worker's side: one instance, its connection to the node, and the thread that runs it."""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_node.backends.hosted.batches import RequestReader, said_results
from serving_node.backends.hosted.orders import read_config, read_device, said_error
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_channel import Channel
from serving_node.contract.errors import ErrorCode
from serving_node.core.backend import BackendInstance, BackendModel, LoopInstance, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution

_CANCELLED = InferenceError(ErrorCode.CANCELLED, "")


@dataclass(frozen=True, slots=True)
class Opened:
    """The version that a worker has opened. ``resident_before``: bytes of the process before it did."""

    model: BackendModel
    source: ModelSource
    resident_before: int

    def memory_bytes(self) -> int:
        """Return what the model takes of this process: what it has grown by, or its part of the model's estimate.

        Models estimate for all their devices; memory of GPUs shows in the estimate only.
        """
        return max(resident_bytes() - self.resident_before, self.model.memory_bytes() // len(self.source.devices))


def resident_bytes() -> int:
    """Return how much memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def serve(opened: Opened, data_fd: int, control_fd: int, flags_fd: int) -> None:
    """Make the instance that is ordered and run its batches until the node has enough or is gone."""
    flags = mmap.mmap(flags_fd, wire.FLAGS_BYTES)
    os.close(flags_fd)
    with socket.socket(fileno=data_fd) as data, socket.socket(fileno=control_fd) as control:
        channel = Channel(data, control)
        threading.Thread(target=_listen, args=(channel,), name="node", daemon=True).start()
        instance: BackendInstance | None = None
        try:
            instance = _serve(opened, channel, flags)
        except OSError:
            return  # the node has let go of the connection
        finally:
            if instance is not None:
                _close(instance)
        channel.send(wire.FINALIZED, [])


def _listen(channel: Channel) -> None:
    """Read what the node says while batches run, until the connection ends."""
    buffer = bytearray(wire.LARGEST_DATAGRAM + 4096)
    try:
        while (message := channel.receive_control(buffer)) is not None:
            if message[0] == wire.HURRY:
                channel.hurry()
    except OSError:
        return


def _serve(opened: Opened, channel: Channel, flags: mmap.mmap) -> BackendInstance | None:
    """Return the instance when it has had its last batch."""
    instance: BackendInstance | None = None
    reader: RequestReader | None = None
    while (message := channel.receive()) is not None:
        kind, fields, payload, block = message
        message.clear()
        if kind == wire.START:
            order: Mapping[str, Any] = fields[0]
            try:
                instance, reader = _made(opened, order, flags)
            except BaseException as error:
                if not isinstance(error, InferenceError):
                    traceback.print_exc()
                channel.send(wire.STARTED, [said_error(error), None])
                continue
            channel.poll_for(order["busy_poll_ns"])
            channel.send(wire.STARTED, [None, {"memory_bytes": opened.memory_bytes()}])
        elif kind == wire.EXECUTE and instance is not None and reader is not None:
            handle, batches, alone = fields
            channel.is_one_by_one = alone == 1
            executions = reader.executions(handle, batches, payload, block)
            del payload, block
            left = len(batches)
            for execution in executions:
                left -= 1
                _run(instance, execution)
                ready_ns, computed_ns = execution.inputs_ready_ns, execution.computed_ns
                results = said_results(execution)
                # the last views on the inputs, so that their memory travels back with the answer
                del execution
                channel.end_batch(ready_ns, computed_ns, results, not left)
                del results
        elif kind == wire.FINALIZE:
            break
    return instance


def _made(opened: Opened, order: Mapping[str, Any], flags: mmap.mmap) -> tuple[BackendInstance, RequestReader]:
    config = read_config(order["config"])
    instance = opened.model.create_instance(read_device(order["device"]), config, order["instance"])
    if isinstance(instance, LoopInstance):
        sentence = f"the backend of model '{opened.source.name}' runs processes itself and cannot be hosted in one"
        raise InferenceError(ErrorCode.UNSUPPORTED, sentence)
    source = opened.source
    rowless = frozenset(tensor.name for tensor in config.input if tensor.is_shape_tensor)
    reader = RequestReader(source.name, source.version, flags, has_rows=config.max_batch_size > 0, rowless=rowless)
    return instance, reader


def _run(instance: BackendInstance, execution: Execution) -> None:
    """Run a batch; afterwards it has one result for each request, and its times."""
    requests = execution.requests
    execution.started_ns = time.monotonic_ns()
    if all(request.cancelled for request in requests):
        execution.results = [_CANCELLED] * len(requests)  # everybody left while the batch waited
    else:
        try:
            instance.execute(execution)
            if len(execution.results) != len(requests):
                sentence = f"the backend gave {len(execution.results)} results for {len(requests)} requests"
                raise InferenceError(ErrorCode.INTERNAL, sentence)
        except Exception as error:
            if not isinstance(error, InferenceError):
                traceback.print_exc()
                error = InferenceError(ErrorCode.INTERNAL, str(error) or type(error).__name__)
            execution.results = [error] * len(requests)
            execution.again = None
    execution.inputs_ready_ns = execution.inputs_ready_ns or execution.started_ns
    execution.computed_ns = execution.computed_ns or time.monotonic_ns()


def _close(instance: BackendInstance) -> None:
    try:
        instance.close()
    except Exception:
        traceback.print_exc()
