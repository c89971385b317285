from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.domain.measurements import (
    Answers,
    Cell,
    Grid,
    cell_of,
    default_batches,
    element_bytes,
    grid_problems,
    input_shapes,
    quantile,
    request_bytes,
    scratch_config,
)
from serving_node.contract.datatypes import WIRE_NAMES, byte_size
from serving_node.contract.model_config import parse_json, parse_pbtxt, to_json
from serving_node.contract.signature import ModelSignature, TensorSignature

SIGNATURE = ModelSignature(
    inputs=(TensorSignature("x", "FP32", (-1, 3, -1)), TensorSignature("text", "BYTES", (-1, 1))),
    outputs=(TensorSignature("y", "FP32", (-1, 4)),),
)
BATCHING = parse_pbtxt('name: "m" backend: "onnxruntime" max_batch_size: 16')


def fields(grid: Grid, text: str = 'name: "m" backend: "onnxruntime" max_batch_size: 16') -> list[str]:
    return [problem["field"] for problem in grid_problems(grid, parse_pbtxt(text), SIGNATURE)]


def test_a_grid_survives_json() -> None:
    grid = Grid((1, 8), (1, 2), 0.5, {"x": (3, 7)})
    assert Grid.from_json(grid.to_json()) == grid


@pytest.mark.parametrize(("most", "batches"), [(0, (1,)), (1, (1,)), (4, (1, 4)), (64, (1, 8, 32, 64))])
def test_the_usual_batches_end_at_the_largest_batch(most: int, batches: tuple[int, ...]) -> None:
    config = parse_pbtxt(f'name: "m" max_batch_size: {most}')
    assert default_batches(config) == batches
    assert grid_problems(Grid(batches), config, ModelSignature((), ())) == []


@pytest.mark.parametrize(
    ("grid", "field"),
    [
        (Grid(()), "batch"),
        (Grid((0,)), "batch"),
        (Grid((17,)), "batch"),
        (Grid((1,), (0,)), "instances"),
        (Grid((1,), (17,)), "instances"),
        (Grid(tuple(range(1, 14)), (1, 2)), "batch"),
        (Grid((1,), seconds=11), "seconds"),
        (Grid((1,), seconds=0), "seconds"),
        (Grid((1,), shapes={"z": (1,)}), "shapes"),
        (Grid((1,), shapes={"x": (3,)}), "shapes"),
        (Grid((1,), shapes={"x": (4, 5)}), "shapes"),
        (Grid((1,), shapes={"x": (3, 0)}), "shapes"),
        (Grid((16,), shapes={"x": (3, 400_000)}), "batch"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_at_its_field(grid: Grid, field: str) -> None:
    assert fields(grid) == [field]


@pytest.mark.parametrize(
    "scheduling",
    [
        "sequence_batching { }",
        'ensemble_scheduling { step { model_name: "a" } }',
        "model_transaction_policy { decoupled: true }",
    ],
)
def test_what_cannot_be_measured_says_so(scheduling: str) -> None:
    assert fields(Grid((1,)), f'name: "m" max_batch_size: 16 {scheduling}') == ["config"]


def test_the_copy_runs_each_request_by_itself() -> None:
    text = (
        'name: "m" backend: "onnxruntime" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100 }'
        " response_cache { enable: true } instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 kind: KIND_CPU } ]"
    )
    made = parse_json(scratch_config(to_json(parse_pbtxt(text)), "~1", 3))
    assert (made.name, made.max_batch_size, made.backend) == ("~1", 8, "onnxruntime")
    assert not made.HasField("dynamic_batching") and not made.HasField("response_cache")
    assert [group.count for group in made.instance_group] == [3, 3]
    assert [group.count for group in parse_json(scratch_config({"name": "m"}, "~1", 2)).instance_group] == [2]


def test_shapes_take_the_batch_and_the_sizes_given() -> None:
    assert input_shapes(SIGNATURE, BATCHING, 5, {"x": (3, 7)}) == {"x": (5, 3, 7), "text": (5, 1)}
    assert input_shapes(SIGNATURE, BATCHING, 1, {}) == {"x": (1, 3, 1), "text": (1, 1)}
    unbatched = parse_pbtxt('name: "m"')
    assert input_shapes(SIGNATURE, unbatched, 1, {})["x"] == (1, 3, 1)
    assert request_bytes(SIGNATURE, BATCHING, 5, {"x": (3, 7)}) == 5 * 21 * 4 + 5 * 8


@given(st.sampled_from(WIRE_NAMES), st.integers(0, 100))
def test_elements_fill_their_type(datatype: str, count: int) -> None:
    data = element_bytes(datatype, count)
    assert len(data) == count * (byte_size(datatype) or 8)
    kinds: dict[str, Any] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "INT64": "<i8", "UINT8": "u1", "BOOL": "?"}
    if datatype in kinds:
        values = np.frombuffer(data, kinds[datatype])
        assert np.all((values >= 0) & (values <= 1))
    if datatype == "BYTES" and count:
        assert struct.unpack("<I", data[:4]) == (4,)


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_not_exceeded_by_its_share(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-9
    assert found in ordered


def test_answers_become_rates_and_milliseconds() -> None:
    answers = Answers(2.0, (0.010, 0.020, 0.030, 0.040), 0.005, 0.001)
    cell = cell_of(Cell(8, 1, 2, load_seconds=0.5, memory_bytes=7), answers)
    assert (cell.requests, cell.requests_per_second, cell.rows_per_second) == (4, 2.0, 16.0)
    assert (cell.latency_p50_ms, cell.latency_p99_ms, cell.compute_ms, cell.queue_ms) == (20.0, 40.0, 5.0, 1.0)
    assert (cell.load_seconds, cell.memory_bytes, cell.error) == (0.5, 7, "")


def test_without_answers_a_cell_says_why() -> None:
    refused = cell_of(Cell(8, 1, 2), Answers(2.0, (), failures=5, refusal="out of memory"))
    assert (refused.requests, refused.failures, refused.error) == (0, 5, "out of memory")
    assert "2.0 s" in cell_of(Cell(8, 1, 2), Answers(2.0, ())).error
