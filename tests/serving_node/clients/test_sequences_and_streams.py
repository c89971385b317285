"""What Triton's public example programs do, done by programs of ours: sequences and models with many answers."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
from tritonclient.utils import InferenceServerException

from tests.serving_node.server.processes import NodeProcess

from .conftest import Serve

NAMES = (
    "simple_sequence",
    "simple_dyna_sequence",
    "simple_string_dyna_sequence",
    "repeat_int32",
    "square_int32",
    "simple",
)
VALUES = [5, 11, 7, 0, 1]


@pytest.fixture(scope="module")
def node(serve: Serve) -> Iterator[NodeProcess]:
    with serve(*NAMES) as node:
        yield node


def steps(key: int | str, values: list[int]) -> Iterator[tuple[np.ndarray[Any, Any], dict[str, Any]]]:
    """Yield the input and the flags of each request of a sequence."""
    for number, value in enumerate(values):
        flags = {
            "sequence_id": key,
            "sequence_start": number == 0,
            "sequence_end": number == len(values) - 1,
        }
        yield np.array([[value]], np.int32), flags


def number_in(library: Any, array: np.ndarray[Any, Any]) -> list[Any]:
    given = library.InferInput("INPUT", [1, 1], "INT32")
    given.set_data_from_numpy(array)
    return [given]


def expected(model: str, key: int | str, values: list[int]) -> list[int]:
    accumulates = model == "simple_string_dyna_sequence"
    answers = np.cumsum(values).tolist() if accumulates else [values[0] + 1, *values[1:]]
    if "dyna" in model:
        answers[-1] += int(key)
    return answers


SEQUENCES = [
    ("simple_sequence", 1000),
    ("simple_sequence", "25a5938b-f74f-4fe3-a008-da1cd027f822"),
    ("simple_dyna_sequence", 1001),
    ("simple_string_dyna_sequence", "1002"),
]


@pytest.mark.parametrize(("model", "key"), SEQUENCES)
def test_a_sequence_one_by_one(protocol: tuple[Any, Any], model: str, key: int | str) -> None:
    library, client = protocol
    answers = [
        int(client.infer(model, number_in(library, array), **flags).as_numpy("OUTPUT")[0, 0])
        for array, flags in steps(key, VALUES)
    ]
    assert answers == expected(model, key, VALUES)


def test_a_sequence_that_was_not_started_is_refused(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    with pytest.raises(InferenceServerException, match=r"sequence 77 .* must specify the START flag"):
        client.infer("simple_sequence", number_in(library, np.zeros((1, 1), np.int32)), sequence_id=77)


def test_sequences_side_by_side_on_one_stream(grpc: triton_grpc.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc.start_stream(lambda result, error: done.put((result, error)))
    for together in zip(*(steps(key, VALUES) for _, key in SEQUENCES), strict=True):
        for (model, key), (array, flags) in zip(SEQUENCES, together, strict=True):
            grpc.async_stream_infer(model, number_in(triton_grpc, array), request_id=f"{model}/{key}", **flags)
    answers: dict[str, list[int]] = {}
    for _ in range(len(SEQUENCES) * len(VALUES)):
        result, error = done.get(timeout=30)
        assert error is None
        answers.setdefault(result.get_response().id, []).append(int(result.as_numpy("OUTPUT")[0, 0]))
    grpc.stop_stream()
    assert answers == {f"{model}/{key}": expected(model, key, VALUES) for model, key in SEQUENCES}


@pytest.mark.parametrize(("model", "key"), SEQUENCES)
async def test_a_sequence_on_a_stream_with_asyncio(node: NodeProcess, model: str, key: int | str) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for array, flags in steps(key, VALUES):
            yield {"model_name": model, "inputs": number_in(triton_grpc, array), **flags}

    answers = []
    async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{node.grpc}") as client:
        async for result, error in client.stream_infer(requests()):
            assert error is None
            answers.append(int(result.as_numpy("OUTPUT")[0, 0]))
    assert answers == expected(model, key, VALUES)


# -- models with any number of answers


def repeat(values: list[int]) -> list[Any]:
    arrays = {
        "IN": np.array(values, np.int32),
        "DELAY": np.ones(len(values), np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    inputs = [
        triton_grpc.InferInput(name, list(array.shape), "INT32" if name == "IN" else "UINT32")
        for name, array in arrays.items()
    ]
    for tensor, array in zip(inputs, arrays.values(), strict=True):
        tensor.set_data_from_numpy(array)
    return inputs


def test_every_answer_of_a_decoupled_model_comes_in_order(grpc: triton_grpc.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc.start_stream(lambda result, error: done.put((result, error)))
    grpc.async_stream_infer("repeat_int32", repeat([4, 3, 2]), request_id="r", enable_empty_final_response=True)
    seen, finals = [], []
    while not finals or not finals[-1]:
        result, error = done.get(timeout=30)
        assert error is None
        response = result.get_response()
        assert response.id == "r"
        finals.append(response.parameters["triton_final_response"].bool_param)
        if response.outputs:
            seen.append(int(result.as_numpy("OUT")[0]))
    grpc.stop_stream()
    assert seen == [4, 3, 2]
    assert finals == [False, False, False, True]


def test_requests_with_different_numbers_of_answers(grpc: triton_grpc.InferenceServerClient) -> None:
    done: queue.Queue[tuple[Any, Any]] = queue.Queue()
    grpc.start_stream(lambda result, error: done.put((result, error)))
    counts = {"a": 3, "b": 0, "c": 5}
    for key, count in counts.items():
        given = triton_grpc.InferInput("IN", [1], "INT32")
        given.set_data_from_numpy(np.array([count], np.int32))
        grpc.async_stream_infer("square_int32", [given], request_id=key)
    seen: dict[str, int] = dict.fromkeys(counts, 0)
    for _ in range(sum(counts.values())):
        result, error = done.get(timeout=30)
        assert error is None
        key = result.get_response().id
        assert int(result.as_numpy("OUT")[0]) == counts[key]
        seen[key] += 1
    grpc.stop_stream()
    assert seen == counts


def test_a_decoupled_model_is_refused_where_one_answer_is_possible(protocol: tuple[Any, Any]) -> None:
    library, client = protocol
    given = library.InferInput("IN", [1], "INT32")
    given.set_data_from_numpy(np.ones(1, np.int32))
    with pytest.raises(InferenceServerException, match="doesn't support models with decoupled transaction policy"):
        client.infer("square_int32", [given])
