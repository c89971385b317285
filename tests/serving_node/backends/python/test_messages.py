"""What travels between the node and a worker, without processes."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_node.backends.python.messages import RequestTable, Results, ResultTable, encode_batches
from serving_node.backends.python.worker import flotilla_wire as wire
from serving_node.backends.python.worker.flotilla_wire import WireError
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, RequestedOutput
from serving_node.core.tensor import Tensor

_TENSORS = st.lists(
    st.tuples(st.text(max_size=8), st.one_of(st.binary(max_size=200), st.integers(0, 40_000).map(bytes))), max_size=4
)
_REQUESTS = st.lists(
    st.tuples(st.text(max_size=10), _TENSORS, st.dictionaries(st.text(max_size=4), st.integers(-5, 5), max_size=2)),
    min_size=1,
    max_size=3,
)


def request_of(identity: str, tensors: list[tuple[str, bytes]], parameters: dict[str, int]) -> InferenceRequest:
    inputs = [Tensor(name, "UINT8", (len(data),), memoryview(data)) for name, data in tensors]
    request = InferenceRequest("m", "", inputs, print, identity, [RequestedOutput("OUT")])
    request.parameters = dict(parameters)
    return request


@given(st.lists(st.lists(_REQUESTS, min_size=1, max_size=3), min_size=1, max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_byte_arrives_where_its_look_says(messages: list[list[list[Any]]], are_alike: bool) -> None:
    table = RequestTable()
    looks: dict[int, list[Any]] = {}
    for batches in messages:
        requests = [[request_of(*one) for one in batch] for batch in batches]
        if are_alike:
            for request in (request for batch in requests for request in batch):
                request.alike = tuple((tensor.name, len(tensor.data)) for tensor in request.inputs)
                request.alike_inputs = request.inputs
        encoded = encode_batches(requests, table)
        header = json.loads(orjson.dumps(encoded.records))
        sent = bytearray(encoded.placed_bytes) or bytearray(b"".join(encoded.payload))
        for position, data in encoded.placed:
            sent[position : position + len(data)] = data
        step = 64 if encoded.placed else 16
        start = 0
        for batch, records in zip(batches, header, strict=True):
            for (identity, tensors, parameters), record in zip(batch, records, strict=True):
                said, *rest = record if isinstance(record, list) else [record]
                given_id, _, _, _, given_parameters = (*rest, *("", 0, 0, 0, "")[len(rest) :])
                assert given_id == identity
                assert json.loads(given_parameters or "{}") == parameters
                if isinstance(said, list):
                    looks[said[0]] = said[1:]
                    number = said[0]
                else:
                    number = said
                outputs, inputs = looks[number]
                assert outputs == ["OUT"]
                for (name, data), described in zip(tensors, inputs, strict=True):
                    assert described == [name, "UINT8", [len(data)], len(data)]
                    assert sent[start : start + len(data)] == data
                    start = wire.aligned(start + len(data), step)


def test_what_requests_have_in_common_counts_only_for_the_inputs_that_were_looked_at() -> None:
    table = RequestTable()
    first, second = (request_of(name, [("IN", bytes(3))], {}) for name in "ab")
    first.alike = second.alike = object()
    first.alike_inputs, second.alike_inputs = first.inputs, second.inputs
    assert isinstance(table.find(first)[1], list) and table.find(second)[1] == 0
    second.inputs = [*second.inputs, Tensor("MORE", "UINT8", (1,), b"x")]
    assert table.find(second)[1] == [1, ("OUT",), (("IN", "UINT8", (3,), 3), ("MORE", "UINT8", (1,), 1))]


def test_a_look_is_said_once_and_again_when_the_table_was_full_or_forgotten() -> None:
    table = RequestTable()
    same = request_of("a", [("IN", b"xyz")], {})
    other = request_of("b", [("IN", b"wxyz")], {})
    assert table.find(same)[1] == [0, ("OUT",), (("IN", "UINT8", (3,), 3),)]
    assert table.find(same)[1] == 0 and isinstance(table.find(other)[1], list) and table.find(other)[1] == 1
    for size in range(wire.TABLE_ENTRIES):
        table.find(request_of("c", [("IN", bytes(100 + size))], {}))
    said = table.find(same)[1]
    assert isinstance(said, list) and 0 <= said[0] < wire.TABLE_ENTRIES
    table.forget()
    assert isinstance(table.find(other)[1], list)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)
_OUTPUT = st.tuples(
    st.sampled_from(["OUT", "", 7]),
    st.sampled_from(["FP32", "BYTES", "BF16", "NONE", None]),
    st.lists(st.one_of(st.integers(-2, 2**62), st.booleans(), st.text(max_size=2)), max_size=3) | st.just("ab"),
    st.one_of(st.integers(-5, 300), st.integers(0, 2**63), st.none()),
)
_LOOK = st.one_of(st.integers(-2, 300), st.tuples(st.integers(-2, 300) | st.none(), st.lists(_OUTPUT, max_size=3)))


@given(st.lists(st.one_of(_JSON, _LOOK, st.tuples(_LOOK, st.one_of(st.just(""), st.text(max_size=9)))), max_size=3))
@settings(max_examples=300, deadline=None)
def test_nonsense_in_results_is_refused_or_stays_in_bounds(message: list[Any]) -> None:
    reader = Results(ResultTable(), bytes(100), np.zeros(256, np.uint8))
    for encoded in message:
        try:
            result, parameters = reader.result(encoded)
        except WireError:
            return
        if isinstance(result, InferenceError):
            assert parameters is None
            continue
        for tensor in result:
            assert len(tensor.data) <= 256
            if tensor.datatype != "BYTES":
                tensor.as_numpy()


def test_results_are_read_and_their_look_is_known_from_then_on() -> None:
    values = np.arange(32, dtype=np.float32)
    table = ResultTable()
    look = [5, [["A", "FP32", [3], 12], ["B", "FP32", [2, 1], 8]]]
    reader = Results(table, values.tobytes(), None)
    result, parameters = reader.result([look, '{"p": 1}'])
    assert isinstance(result, list) and parameters == {"p": 1}
    assert result[0].as_numpy().tolist() == [0, 1, 2] and result[1].as_numpy().tolist() == [[4], [5]]
    error, _ = reader.result(["missing", 2])
    assert isinstance(error, InferenceError) and (error.code, error.message) == (ErrorCode.NOT_FOUND, "missing")
    again, nothing = reader.result(5)
    assert isinstance(again, list) and again[0].as_numpy().tolist() == [8, 9, 10] and nothing is None
    in_block, _ = Results(table, b"", values.view(np.uint8)).result([5, ""])
    assert isinstance(in_block, list) and in_block[1].as_numpy().tolist() == [[16], [17]]
    with pytest.raises(WireError, match="makes no sense"):
        reader.result(6)
    with pytest.raises(WireError, match="past its end"):
        Results(table, bytes(16), None).result(5)


@given(st.binary(max_size=64))
def test_any_datagram_is_split_or_refused(data: bytes) -> None:
    try:
        _, _, header, start = wire.split(memoryview(data))
    except WireError:
        return
    assert len(header) <= len(data) and start >= 8


@given(st.integers(0, 2**40))
def test_blocks_are_large_enough_and_not_much_larger(size: int) -> None:
    given_size = wire.block_size(size)
    assert size <= given_size <= max(2 * size, 64 * 1024) and given_size % 4096 == 0


class TestBlocks:
    def setup_method(self) -> None:
        self.pool = wire.BlockPool()
        self.map = wire.BlockMap(writable=False)

    def teardown_method(self) -> None:
        self.pool.close()

    def test_a_block_is_used_again_when_nobody_looks(self) -> None:
        block = self.pool.take(100_000)
        block.bytes[:3] = b"abc"
        self.map.attach(block.number, block.size, os.dup(block.fd))
        view = self.map.view(block.number)
        part = memoryview(view)[1:3]
        del view
        assert bytes(part) == b"bc" and self.map.take_freed() == []
        del part
        freed = self.map.take_freed()
        assert freed == [block.number] and self.map.viewed == 0
        self.pool.give_back(freed)
        assert self.pool.take(90_000) is block and self.pool.used == 1

    def test_what_was_not_passed_is_refused(self) -> None:
        with pytest.raises(WireError):
            self.pool.give_back([1])
        with pytest.raises(WireError):
            self.map.view(1)

    def test_many_free_blocks_are_not_kept(self) -> None:
        blocks = [self.pool.take(32 << 20) for _ in range(4)]
        self.pool.give_back([block.number for block in blocks])
        assert self.pool.take_dropped() == [block.number for block in blocks[2:]]
        assert all(block.fd < 0 for block in blocks[2:])

    @pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW])
    def test_memory_that_could_be_cut_off_is_refused(self, seals: int) -> None:
        fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 65536)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        with pytest.raises(WireError, match="not sealed"):
            self.map.attach(1, 65536, fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)

    def test_a_wrong_size_is_refused(self) -> None:
        block = self.pool.take(10)
        with pytest.raises(WireError, match="not sealed"):
            self.map.attach(1, block.size * 2, os.dup(block.fd))


def test_files_travel_with_datagrams_and_long_ones_are_refused() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        out, into = os.pipe()
        wire.send_datagram(left, b"hello", into)
        buffer = bytearray(16)
        length, fd = wire.receive_into(right, buffer)
        assert bytes(buffer[:length]) == b"hello"
        os.write(fd, b"x")
        assert os.read(out, 1) == b"x"
        for one in (out, into, fd):
            os.close(one)
        left.send(bytes(100))
        with pytest.raises(WireError, match="too long"):
            wire.receive_into(right, buffer)
