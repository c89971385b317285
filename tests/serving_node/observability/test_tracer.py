from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from serving_node.core.tensor import Tensor, encode_bytes_elements
from serving_node.core.trace import RequestTrace
from serving_node.observability.tracing.options import OpenTelemetryOptions, TraceLevel, TraceMode, TraceOptions
from serving_node.observability.tracing.rows import BeginRow, TensorRow, TimeRow, render_rows, tensor_text
from serving_node.observability.tracing.settings import TraceSetting, changes_from_json
from serving_node.observability.tracing.trace_file import TraceFile
from serving_node.observability.tracing.tracer import FileTrace, Tracer, open_tracer

BOTH = TraceLevel.TIMESTAMPS | TraceLevel.TENSORS


def tracer(path: Path, **more: Any) -> Tracer:
    return Tracer(TraceOptions(file=str(path), **{"level": TraceLevel.TIMESTAMPS, "rate": 1, **more}))


def run(trace: RequestTrace | None, request_id: str = "") -> None:
    """Take a trace the way of a request."""
    assert trace is not None
    trace.mark("HTTP_RECV_START", 1)
    trace.begin("m", "3", request_id, 2)
    trace.tensors("TENSOR_QUEUE_INPUT", [Tensor("x", "FP32", (2,), np.array([1.5, 1e-9], np.float32).tobytes())])
    trace.mark("HTTP_SEND_END", 4)
    trace.finish()
    trace.end(5)


def rows(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text()))


async def test_rows_are_tritons(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    traced = tracer(path, level=BOTH)
    run(traced.start("m", {}), 'a"b\n')
    run(traced.start("m", {}))
    await traced.close(10)
    assert rows(path)[:6] == [
        {"id": 1, "timestamps": [{"name": "HTTP_RECV_START", "ns": 1}]},
        {"id": 1, "model_name": "m", "model_version": 3, "request_id": 'a"b\n'},
        {"id": 1, "timestamps": [{"name": "REQUEST_START", "ns": 2}]},
        {
            "id": 1,
            "activity": "TENSOR_QUEUE_INPUT",
            "tensor": {"name": "x", "data": "1.5,1e-09", "shape": "2", "dtype": "FP32"},
        },
        {"id": 1, "timestamps": [{"name": "HTTP_SEND_END", "ns": 4}]},
        {"id": 1, "timestamps": [{"name": "REQUEST_END", "ns": 5}]},
    ]
    assert "request_id" not in rows(path)[7]


async def test_levels_choose_the_rows(tmp_path: Path) -> None:
    for level, kinds in ((TraceLevel.TIMESTAMPS, {"timestamps", "model_name"}), (TraceLevel.TENSORS, {"tensor"})):
        path = tmp_path / str(level.value)
        traced = tracer(path, level=level)
        run(traced.start("m", {}))
        await traced.close(10)
        assert {kind for row in rows(path) for kind in row} & {"timestamps", "model_name", "tensor"} == kinds


async def test_trace_is_written_when_both_parts_are_through(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    traced = tracer(path)
    for order in ("end finish", "finish end", "finish"):
        trace = traced.start("m", {})
        assert trace is not None
        trace.mark("HTTP_RECV_START", 1)
        if "end" in order:
            trace.begin("m", "1", "", 2)
        for step in order.split() * 2:
            trace.finish() if step == "finish" else trace.end(9)
    never = traced.start("m", {})
    assert never is not None
    never.begin("m", "1", "", 2)
    never.finish()
    await traced.close(10)
    assert [row["id"] for row in rows(path) if "HTTP_RECV_START" in str(row)] == [1, 2, 3]


async def test_files_of_so_many_traces_and_the_rest_at_the_end(tmp_path: Path) -> None:
    traced = tracer(tmp_path / "t", log_frequency=2)
    for _ in range(5):
        run(traced.start("m", {}))
    await traced.close(10)
    ids = [sorted({row["id"] for row in rows(tmp_path / f"t.{index}")}) for index in range(3)]
    assert ids == [[1, 2], [3, 4], [5]]
    assert not (tmp_path / "t").exists()


async def test_counted_traces_get_a_file_when_all_are_there(tmp_path: Path) -> None:
    traced = tracer(tmp_path / "t", count=2)
    run(traced.start("m", {}))
    run(traced.start("m", {}))
    assert traced.start("m", {}) is None
    await traced.close(10)
    assert {row["id"] for row in rows(tmp_path / "t.0")} == {1, 2}


async def test_changed_settings_write_what_waited(tmp_path: Path) -> None:
    traced = tracer(tmp_path / "t", log_frequency=10)
    run(traced.start("m", {}))
    late = traced.start("m", {})
    traced.update("", changes_from_json({"log_frequency": "0"}))
    run(traced.start("m", {}))
    run(late)
    await traced.close(10)
    assert [{row["id"] for row in rows(path)} for path in sorted(tmp_path.iterdir())] == [{3}, {1}, {2}]


async def test_nothing_is_traced_without_a_file_or_a_level(tmp_path: Path) -> None:
    assert not Tracer(TraceOptions(level=TraceLevel.TIMESTAMPS)).enabled
    assert not tracer(tmp_path / "t", level=TraceLevel.OFF).enabled
    traced = tracer(tmp_path / "t", level=TraceLevel.OFF)
    traced.update("m", changes_from_json({"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}))
    assert traced.enabled
    assert traced.start("other", {}) is None
    assert traced.start("m", {}) is not None


async def test_disk_that_does_not_keep_up_costs_traces_and_not_memory(tmp_path: Path) -> None:
    file = TraceFile(str(tmp_path / "t"), max_queued_bytes=1000)
    file._thread = threading.Thread()  # a writer that never comes to it
    setting = TraceSetting(TraceLevel.TIMESTAMPS, 1, -1, 0)
    for number in range(100):
        file.submit(setting, number, [TimeRow("X", 1)])
    assert file._queue.qsize() < 5


async def test_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    traced = tracer(tmp_path / "no" / "folder", log_frequency=1)
    with capture_logs() as lines:
        run(traced.start("m", {}))
        run(traced.start("m", {}))
        await traced.close(10)
    assert [line["event"] for line in lines] == ["trace.write_failed"]


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        ("BOOL", np.array([True, False]), "1,0"),
        ("UINT8", np.array([65, 10], np.uint8), "65,10"),
        ("INT8", np.array([66, -1], np.int8), "66,-1"),
        ("INT64", np.array([-(2**63)], np.int64), str(-(2**63))),
        ("FP16", np.array([1, 2.5], np.float16), "1,2.5"),
        ("BF16", np.array([0x3F80], np.uint16), "1"),
        ("FP64", np.array([1 / 3]), "0.333333"),
        ("FP32", np.array([], np.float32), ""),
    ],
)
def test_tensor_text(datatype: str, data: np.ndarray[Any, Any], text: str) -> None:
    assert tensor_text(Tensor("t", datatype, data.shape, data.tobytes())) == text


@given(st.text(), st.lists(st.binary(max_size=20), max_size=5))
def test_any_text_makes_json(request_id: str, elements: list[bytes]) -> None:
    data = encode_bytes_elements(np.array([*elements, None], object)[:-1])
    tensor = Tensor("t", "BYTES", (len(elements),), data)
    rendered = render_rows(7, [BeginRow("m", "1", request_id), TensorRow("TENSOR_QUEUE_INPUT", tensor)])
    begin, row = json.loads(b"[" + rendered + b"]")
    assert begin.get("request_id", "") == request_id.encode("utf-8", "replace").decode()
    assert row["tensor"]["data"] == ",".join(f'"{element.decode("utf-8", "replace")}"' for element in elements)


async def test_a_trace_below_another_names_it_and_counts_for_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    traced = tracer(path, count=1)
    trace = traced.start("m", {})
    assert trace is not None
    below = trace.child()
    run(below)
    run(trace)
    await traced.close(10)
    written = [row for file in sorted(tmp_path.glob("trace.json*")) for row in rows(file)]
    begun = [row for row in written if "model_name" in row]
    assert begun == [
        {"id": 2, "model_name": "m", "model_version": 3, "parent_id": 1},
        {"id": 1, "model_name": "m", "model_version": 3},
    ]


def test_large_tensors_are_only_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving_node.observability.tracing.tracer._MAX_TENSOR_BYTES", 3)
    assert tensor_text(Tensor("t", "FP32", (1,), b"")) == ""
    trace = FileTrace(TraceFile(""), TraceSetting(BOTH, 1, -1, 0), lambda: 1)
    trace.tensors("TENSOR_QUEUE_INPUT", [Tensor("x", "FP32", (1,), bytes(4)), Tensor("y", "INT8", (3,), bytes(3))])
    assert [len(row.tensor.data) for row in trace._rows if isinstance(row, TensorRow)] == [0, 3]


def test_tensor_text_of_strings() -> None:
    assert tensor_text(Tensor("t", "BYTES", (2,), b"\2\0\0\0a\xff\0\0\0\0")) == '"a�",""'


def test_opentelemetry_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "serving_node.observability.tracing.spans", None)
    with pytest.raises(Exception, match=r"flotilla\[otel\]"):
        open_tracer(TraceOptions(TraceMode.OPENTELEMETRY, opentelemetry=OpenTelemetryOptions()))
