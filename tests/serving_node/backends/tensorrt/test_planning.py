"""What is decided without a GPU: profiles, graphs, sentences about plans."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.backends.tensorrt.buffers import write_rows
from serving_node.backends.tensorrt.facts import Bounds, EngineFacts, EngineTensor, Profile
from serving_node.backends.tensorrt.failures import plan_sentence, plan_version
from serving_node.backends.tensorrt.graphs import GraphPlan, Recorded, plan
from serving_node.backends.tensorrt.profiles import (
    check_shape,
    choose,
    group_of,
    instance_profiles,
    largest_batch,
    largest_shapes,
)
from serving_node.contract.model_config import parse_pbtxt, problems
from serving_node.contract.model_config.cuda_graphs import graph_specs
from serving_node.core.errors import InferenceError
from serving_node.core.tensor import Tensor

DIM = st.integers(1, 6)


@st.composite
def bounds(draw: st.DrawFn, rank: int = 2) -> Bounds:
    three = [sorted(draw(st.tuples(DIM, DIM, DIM))) for _ in range(rank)]
    return Bounds(*(tuple(one[place] for one in three) for place in range(3)))


def facts(*profiles: Bounds) -> EngineFacts:
    return EngineFacts(
        (EngineTensor("x", "FLOAT", (-1, -1), is_input=True), EngineTensor("y", "FLOAT", (-1, -1), is_input=False)),
        tuple(Profile(index, {"x": one}, {}) for index, one in enumerate(profiles)),
    )


def allows(one: Bounds, shape: tuple[int, ...]) -> bool:
    return all(low <= dim <= high for low, dim, high in zip(one.least, shape, one.most, strict=True))


@given(st.lists(bounds(), min_size=1, max_size=4), st.tuples(DIM, DIM))
def test_the_nearest_profile_that_allows_a_shape_is_chosen(given_bounds: list[Bounds], shape: tuple[int, int]) -> None:
    profiles = facts(*given_bounds).profiles
    chosen = choose(profiles, {"x": shape}, {})

    def distance(profile: Profile) -> int:
        return sum(abs(a - b) for a, b in zip(profile.shapes["x"].best, shape, strict=True))

    fitting = [profile for profile in profiles if allows(profile.shapes["x"], shape)]
    if fitting:
        assert chosen in fitting
        assert distance(chosen) == min(map(distance, fitting))
        check_shape("x", shape, chosen.shapes["x"], "m_0")
    else:
        assert chosen is profiles[0]
        with pytest.raises(InferenceError, match="request specifies invalid shape for input 'x' for m_0"):
            check_shape("x", shape, chosen.shapes["x"], "m_0")


@given(bounds(), st.integers(1, 6), st.sampled_from([-1, 1, 3, 6]))
def test_memory_is_planned_for_every_shape_that_a_config_and_its_profile_allow(
    one: Bounds, max_batch_size: int, width: int
) -> None:
    config = parse_pbtxt(f'max_batch_size: {max_batch_size} input {{ name: "x" dims: [ {width} ] }}')
    shapes, values = largest_shapes(facts(one), facts(one).profiles[0], config)
    assert values == {}
    assert allows(one, shapes["x"])
    for rows in range(1, max_batch_size + 1):
        for columns in range(1, 7) if width < 0 else [width]:
            if allows(one, (rows, columns)):
                assert rows * columns <= np.prod(shapes["x"])


def test_batches_are_as_large_as_the_largest_profile_of_the_config_allows() -> None:
    engine = facts(Bounds((1, 1), (1, 1), (4, 9)), Bounds((1, 1), (1, 1), (16, 2)))
    assert largest_batch(engine, parse_pbtxt("")) == 4
    assert largest_batch(engine, parse_pbtxt('instance_group { profile: "0" } instance_group { profile: "1" }')) == 16


@pytest.mark.parametrize(
    ("label", "group"), [("a_0", "a"), ("a_0_0", "a_0"), ("a_0_12_new_new", "a_0"), ("a_3_new", "a"), ("b_0", "b")]
)
def test_instances_know_their_group(label: str, group: str) -> None:
    config = parse_pbtxt(" ".join(f'instance_group {{ name: "{name}" }}' for name in ("a", "a_0", "b")))
    assert group_of(config, label).name == group


def test_profiles_of_a_group_are_taken_once_and_in_order() -> None:
    engine = facts(*[Bounds((1, 1), (1, 1), (4, 9))] * 3)
    assert [one.index for one in instance_profiles(engine, ["2", "0", "02"], "m_0")] == [0, 2]
    assert [one.index for one in instance_profiles(engine, [], "m_0")] == [0]
    with pytest.raises(InferenceError) as caught:
        instance_profiles(engine, ["3"], "m_0")
    assert caught.value.message == (
        "Can not set the specified optimization profile 3[3] for m_0. Expected optimization profile index range 0-2"
    )


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ("", []),
        ("max_batch_size: 8 optimization { cuda { graphs: false } }", []),
        ("optimization { cuda { graphs: true } }", [0]),
        ("max_batch_size: 5 optimization { cuda { graphs: true } }", [1, 2, 3, 4, 5]),
        ("max_batch_size: 64 optimization { cuda { graphs: true } }", [1, 2, 3, 4, 6, 8, 12, 16, 64]),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 } optimization { cuda { graphs: true } }",
            [1, 4, 8],
        ),
        (
            "max_batch_size: 8 sequence_batching { oldest { preferred_batch_size: 3 } }"
            " optimization { cuda { graphs: true } }",
            [1, 3, 8],
        ),
    ],
)
def test_default_graphs_are_those_of_triton(config: str, rows: list[int]) -> None:
    assert [spec.rows for spec in graph_specs(parse_pbtxt(config))] == rows


@pytest.mark.parametrize(
    ("size", "spec", "text"),
    [
        (0, "batch_size: 1", "graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0"),
        (4, "batch_size: 5", "graph spec expects 'batch_size' to be >= 1 and <= 4"),
        (
            4,
            "batch_size: 2 graph_lower_bound { batch_size: 3 }",
            "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'",
        ),
        (
            4,
            'batch_size: 2 input { key: "x" value { dim: [ 3 ] } } graph_lower_bound { batch_size: 1 }',
            "graph lower bound spec expects shape for input 'x'",
        ),
        (
            4,
            'batch_size: 2 input { key: "x" value { dim: [ 3 ] } } graph_lower_bound { batch_size: 1'
            ' input { key: "x" value { dim: [ 4 ] } } }',
            "graph lower bound spec expects input 'x' to have dimension <= 3",
        ),
        (
            4,
            'batch_size: 2 input { key: "x" value { dim: [ -1 ] } }',
            "graph spec expects input 'x' to have dimension >= 0",
        ),
    ],
)
def test_graph_specifications_are_refused_as_by_triton(size: int, spec: str, text: str) -> None:
    optimization = f"optimization {{ cuda {{ graphs: true graph_spec {{ {spec} }} }} }}"
    config = parse_pbtxt(f'name: "m" platform: "tensorrt_plan" max_batch_size: {size} {optimization}')
    found = list(problems(config, require_tensors=False))
    assert [(one.message, one.field) for one in found] == [(text, "optimization.cuda.graph_spec[0]")]
    config.platform = "onnxruntime_onnx"
    assert list(problems(config, require_tensors=False)) == []


def test_a_specification_must_name_all_inputs_and_lie_within_the_profile() -> None:
    engine = facts(Bounds((1, 1), (2, 3), (4, 9)))
    config = "max_batch_size: 8 optimization { cuda { graphs: true graph_spec { batch_size: %d %s } } }"
    named = 'input { key: "x" value { dim: [ 5 ] } }'
    (spec,) = graph_specs(parse_pbtxt(config % (3, named)))
    assert plan(spec, engine, engine.profiles[0]) == GraphPlan({"x": (3, 5)}, {"x": (3, 5)})
    (spec,) = graph_specs(parse_pbtxt(config % (2, "")))
    assert plan(spec, engine, engine.profiles[0]) == GraphPlan({"x": (2, 3)}, {"x": (2, 3)})
    (spec,) = graph_specs(parse_pbtxt(config % (8, named)))
    assert plan(spec, engine, engine.profiles[0]) is None
    (spec,) = graph_specs(parse_pbtxt(config % (3, named.replace('"x"', '"z"'))))
    with pytest.raises(InferenceError, match="trt failed to set input shape for unknown input 'x'"):
        plan(spec, engine, engine.profiles[0])


@given(
    st.lists(st.tuples(DIM, DIM, st.integers(0, 3), st.integers(0, 3)), max_size=5),
    st.tuples(DIM, DIM),
)
def test_a_batch_replays_a_graph_only_if_it_holds_it(
    recorded: list[tuple[int, int, int, int]], shape: tuple[int, int]
) -> None:
    graphs: Recorded[int] = Recorded(["x"])
    plans = [
        GraphPlan({"x": (rows, width)}, {"x": (max(1, rows - a), max(1, width - b))}) for rows, width, a, b in recorded
    ]
    for index, one in enumerate(plans):
        graphs.add(one, index)
    found = graphs.find({"x": shape})
    holding = [
        one
        for one in graphs.graphs()
        if all(
            low <= dim <= high
            for low, dim, high in zip(plans[one].lower["x"], shape, plans[one].shapes["x"], strict=True)
        )
    ]
    assert (found is None) == (not holding)
    if found is not None:
        assert found[1] in holding
        if any(plans[one].shapes["x"] == shape for one in holding):
            assert found[0].shapes["x"] == shape


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), DIM, st.integers(0, 2), st.integers(0, 2))
def test_rows_are_written_one_after_the_other_and_the_rest_is_zero(
    rows: list[int], width: int, more_rows: int, more_width: int
) -> None:
    parts = [np.full((count, width), index + 1, np.float32) for index, count in enumerate(rows)]
    target = np.full((sum(rows) + more_rows, width + more_width), np.nan, np.float32)
    tensors = [Tensor.from_numpy("x", part, "FP32") for part in parts]
    write_rows(target, tensors, exact=not (more_rows or more_width))
    joined = np.concatenate(parts)
    assert np.array_equal(target[: len(joined), :width], joined)
    assert target.sum() == joined.sum()


def head(*version: int) -> bytes:
    return b"ftrt" + struct.pack("<I", 0) + bytes(16) + bytes(version)


@given(st.binary(max_size=40))
def test_any_file_is_told_in_one_sentence(content: bytes) -> None:
    sentence = plan_sentence("", content, "model.plan", "11.4.0.106", allows_host_code=False)
    assert "\n" not in sentence
    assert "'model.plan'" in sentence


@pytest.mark.parametrize(
    ("text", "first", "expected"),
    [
        (
            "",
            head(10, 0, 1, 6),
            "'e' was built by TensorRT 10.0.1.6 and this node runs TensorRT 11.4.0.106: build it again on this node, or"
            " as a version-compatible engine",
        ),
        (
            "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is generated on an"
            " incompatible device, expecting compute 8.6 got compute 9.0, please rebuild.)",
            head(11, 4, 0, 106),
            "'e' was built for GPUs of compute capability 9.0 and this one has 8.6: build it again on this node",
        ),
        (
            "[E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion failed.)",
            head(11, 4, 0, 106),
            "TensorRT 11.4.0.106 cannot open 'e': Serialization (Serialization assertion failed.)",
        ),
    ],
)
def test_mismatches_are_told_apart(text: str, first: bytes, expected: str) -> None:
    assert plan_sentence(text, first, "e", "11.4.0.106", allows_host_code=False) == expected


def test_the_version_is_read_from_the_head_only_where_it_stands() -> None:
    assert plan_version(head(11, 4, 0, 106)) == (11, 4, 0, 106)
    assert plan_version(head(11, 4, 0)) is None
    assert plan_version(b"ftrt\x01\0\0\0" + bytes(20)) is None
