"""What a served model counts. Source: Triton's statistics extension and its inference metrics.

Counters change when a response completes. Requests that fail validation, or that a full queue refuses, are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum

from serving_node.contract.proto import grpc_service_pb2
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.observability.buckets import BucketHistogram
from serving_node.observability.delay_state import DelayState
from serving_node.observability.histogram import LatencyHistogram
from serving_node.observability.quantiles import LatencySummaries


class FailureReason(StrEnum):
    """Why a request failed: the values of the label ``reason``."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


class DurationCounter:
    """How often something happened and how long it took in all, in nanoseconds."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0

    def add(self, duration_ns: int, times: int = 1) -> None:
        """Count a duration ``times`` times."""
        self.count += times
        self.ns += duration_ns * times

    def to_proto(self) -> grpc_service_pb2.StatisticDuration:
        """Return the message of the statistics extension."""
        return grpc_service_pb2.StatisticDuration(count=self.count, ns=self.ns)


class BatchCounters:
    """Executions of one batch size."""

    __slots__ = ("compute_infer", "compute_input", "compute_output")

    def __init__(self) -> None:
        self.compute_input = DurationCounter()
        self.compute_infer = DurationCounter()
        self.compute_output = DurationCounter()


class ModelStatistics:
    """The counters of one served model, cumulative since it was loaded.

    ``summaries``: quantiles are asked for. ``first_response_bounds``: bounds in milliseconds of the histogram of times
    to the first response, for decoupled models when it is asked for. ``cached``: the config asks for the response
    cache, whether or not the node has one, and as in Triton the metrics show what it does.
    Concurrency: written on the event loop only; readers on other threads see each counter whole.
    """

    def __init__(
        self,
        *,
        summaries: bool = False,
        first_response_bounds: Sequence[float] | None = None,
        cached: bool = False,
    ) -> None:
        self.cached = cached
        self.last_inference_ms = 0
        self.inference_count = 0
        self.execution_count = 0
        self.success = DurationCounter()
        self.fail = DurationCounter()
        self.queue = DurationCounter()
        self.compute_input = DurationCounter()
        self.compute_infer = DurationCounter()
        self.compute_output = DurationCounter()
        self.cache_hit = DurationCounter()
        self.cache_miss = DurationCounter()
        self.batches: dict[int, BatchCounters] = {}
        self.failures = dict.fromkeys(FailureReason, 0)
        self.request_seconds = LatencyHistogram()
        self.queue_seconds = LatencyHistogram()
        self.compute_seconds = LatencyHistogram()
        self.summaries = LatencySummaries() if summaries else None
        # filled by the scheduler of a model whose queue delay adapts
        self.adaptive_delay: DelayState | None = None
        self.first_response_ms = BucketHistogram(first_response_bounds) if first_response_bounds is not None else None

    def record_execution(self, execution: Execution, now_ns: int) -> None:
        """Count a finished batch and its requests. ``now_ns`` is monotonic."""
        started_ns = execution.started_ns
        input_ns = execution.inputs_ready_ns - started_ns
        infer_ns = execution.computed_ns - execution.inputs_ready_ns
        output_ns = execution.finished_ns - execution.computed_ns
        if len(execution.requests) == 1 and type(execution.results[0]) is list and self.summaries is None:
            self._record_single(execution, now_ns, input_ns, infer_ns, output_ns)
            return
        rows = 0
        request_ns: list[int] = []
        queue_ns: list[int] = []
        for request, result in zip(execution.requests, execution.results, strict=True):
            duration_ns = now_ns - request.arrival_ns
            if isinstance(result, InferenceError):
                self.record_failure(FailureReason.BACKEND, duration_ns)
                continue
            queue_ns.append(started_ns - request.queued_ns)
            if result is None:
                continue  # its success is counted with its responses
            rows += request.batch_size
            request_ns.append(duration_ns)
        self.last_inference_ms = int(time.time() * 1000)
        self.execution_count += 1
        self._record_batch(execution.rows, input_ns, infer_ns, output_ns)
        computed = len(queue_ns)
        if computed:
            self.inference_count += rows
            self.success.count += len(request_ns)
            self.success.ns += sum(request_ns)
            self.queue.count += computed
            self.queue.ns += sum(queue_ns)
            self.compute_input.add(input_ns, computed)
            self.compute_infer.add(infer_ns, computed)
            self.compute_output.add(output_ns, computed)
            self.request_seconds.observe_all(request_ns)
            self.queue_seconds.observe_all(queue_ns)
            self.compute_seconds.observe_all([input_ns + infer_ns + output_ns] * computed)
            if self.summaries is not None:
                self.summaries.record(request_ns, queue_ns, (input_ns, infer_ns, output_ns), now_ns)

    def _record_single(self, execution: Execution, now_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Count a batch of one request that succeeded: what most batches of unbatched models are."""
        request = execution.requests[0]
        duration_ns = now_ns - request.arrival_ns
        waited_ns = execution.started_ns - request.queued_ns
        self.last_inference_ms = int(time.time() * 1000)
        self.execution_count += 1
        self.inference_count += request.batch_size
        batch = self.batches.get(execution.rows) or self._first_batch(execution.rows)
        # without calls: this runs for every request
        counter = self.success
        counter.count += 1
        counter.ns += duration_ns
        counter = self.queue
        counter.count += 1
        counter.ns += waited_ns
        counter = self.compute_input
        counter.count += 1
        counter.ns += input_ns
        counter = self.compute_infer
        counter.count += 1
        counter.ns += infer_ns
        counter = self.compute_output
        counter.count += 1
        counter.ns += output_ns
        counter = batch.compute_input
        counter.count += 1
        counter.ns += input_ns
        counter = batch.compute_infer
        counter.count += 1
        counter.ns += infer_ns
        counter = batch.compute_output
        counter.count += 1
        counter.ns += output_ns
        self.request_seconds.observe(duration_ns)
        self.queue_seconds.observe(waited_ns)
        self.compute_seconds.observe(input_ns + infer_ns + output_ns)

    def record_response(self, request: InferenceRequest, response: InferenceResponse, now_ns: int) -> None:
        """Count one response of a request that is answered apart from its batch. ``now_ns`` is monotonic."""
        duration_ns = now_ns - request.arrival_ns
        request.responses += 1
        if request.responses == 1 and self.first_response_ms is not None:
            self.first_response_ms.observe(duration_ns / 1e6)
        if not response.final:
            return
        if response.error is not None:
            self.record_failure(FailureReason.BACKEND, duration_ns)
            return
        self.last_inference_ms = int(time.time() * 1000)
        self.inference_count += request.batch_size
        self.success.add(duration_ns)
        self.request_seconds.observe(duration_ns)
        if self.summaries is not None:
            self.summaries.request.observe_all((duration_ns // 1000,), now_ns)

    def record_cache_hit(self, request: InferenceRequest, lookup_ns: int, now_ns: int) -> None:
        """Count a request that was answered from the cache. ``now_ns`` is monotonic."""
        duration_ns = now_ns - request.arrival_ns
        self.success.add(duration_ns)
        self.queue.add(0)
        self.cache_hit.add(lookup_ns)
        self.request_seconds.observe_all((duration_ns,))
        self.queue_seconds.observe_all((0,))
        if self.summaries is not None:
            self.summaries.queue.observe_all((0,), now_ns)
            self.summaries.cache_hit.observe_all((lookup_ns // 1000,), now_ns)

    def record_cache_miss(self, duration_ns: int, now_ns: int) -> None:
        """Count a request that was executed because the cache had no answer: the time to look up and to insert."""
        self.cache_miss.add(duration_ns)
        if self.summaries is not None:
            self.summaries.cache_miss.observe_all((duration_ns // 1000,), now_ns)

    def record_failure(self, reason: FailureReason, duration_ns: int) -> None:
        """Count a request that was accepted and failed later."""
        self.failures[reason] += 1
        self.fail.add(duration_ns)

    def to_proto(self, name: str, version: int, memory_bytes: int = 0) -> grpc_service_pb2.ModelStatistics:
        """Return the message of the statistics extension."""
        message = grpc_service_pb2.ModelStatistics(
            name=name,
            version=str(version),
            last_inference=self.last_inference_ms,
            inference_count=self.inference_count,
            execution_count=self.execution_count,
            inference_stats=grpc_service_pb2.InferStatistics(
                success=self.success.to_proto(),
                fail=self.fail.to_proto(),
                queue=self.queue.to_proto(),
                compute_input=self.compute_input.to_proto(),
                compute_infer=self.compute_infer.to_proto(),
                compute_output=self.compute_output.to_proto(),
                cache_hit=self.cache_hit.to_proto(),
                cache_miss=self.cache_miss.to_proto(),
            ),
        )
        for size, batch in sorted(self.batches.items()):
            message.batch_stats.add(
                batch_size=size,
                compute_input=batch.compute_input.to_proto(),
                compute_infer=batch.compute_infer.to_proto(),
                compute_output=batch.compute_output.to_proto(),
            )
        if memory_bytes:
            message.memory_usage.add(type="CPU", id=0, byte_size=memory_bytes)
        return message

    def _record_batch(self, rows: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        batch = self.batches.get(rows) or self._first_batch(rows)
        batch.compute_input.add(input_ns)
        batch.compute_infer.add(infer_ns)
        batch.compute_output.add(output_ns)

    def _first_batch(self, rows: int) -> BatchCounters:
        batch = self.batches[rows] = BatchCounters()
        return batch
