"""Compressed answers: which encoding, what is on the wire, and that order is kept."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.frontends.compression_level import CompressionLevel
from serving_node.frontends.grpc.compression import compress, encoding_for

from .calls import Feed, infer_method, raw_request, serving, stream_method

NONE, LOW, MEDIUM, HIGH = CompressionLevel


@pytest.mark.parametrize(
    ("level", "accepted", "encoding"),
    [
        (NONE, b"gzip", b"identity"),
        (LOW, b"identity, deflate, gzip", b"gzip"),
        (MEDIUM, b"identity,deflate,gzip", b"deflate"),
        (HIGH, b"gzip,deflate", b"deflate"),
        (HIGH, b"gzip", b"gzip"),
        (MEDIUM, b"gzip", b"gzip"),
        (LOW, b"deflate", b"deflate"),
        (HIGH, b"identity", b"identity"),
        (HIGH, b"snappy", b"identity"),
        (HIGH, b"", b"identity"),
    ],
)
def test_encoding_of_a_level(level: CompressionLevel, accepted: bytes, encoding: bytes) -> None:
    assert encoding_for(level, accepted) == encoding


@given(parts=st.lists(st.binary(max_size=500), max_size=5))
def test_compressed_parts_are_one_message(parts: list[bytes]) -> None:
    assert gzip.decompress(b"".join(map(bytes, compress(b"gzip", list(parts))))) == b"".join(parts)
    assert zlib.decompress(b"".join(map(bytes, compress(b"deflate", list(parts))))) == b"".join(parts)


@pytest.mark.parametrize("level", [LOW, HIGH])
@pytest.mark.parametrize("size", [0, 10, 1000, 60_000, 3_000_000])
def test_unary_answers(dataplane: Any, loop_thread: Any, level: CompressionLevel, size: int) -> None:
    for data in (bytes(size), np.random.default_rng(1).bytes(size)):
        with (
            serving(dataplane, loop_thread, compression=level) as port,
            grpc.insecure_channel(f"localhost:{port}") as channel,
        ):
            assert infer_method(channel)(raw_request(data), timeout=30).raw_output_contents == [data]


def test_answers_of_a_stream_keep_their_order(dataplane: Any, loop_thread: Any) -> None:
    sizes = [10, 200_000, 5, 100_000, 100_000, 0, 70_000, 1]
    feed = Feed()
    for index, size in enumerate(sizes):
        feed.put(raw_request(bytes(size), "echo", str(index)))
    feed.put(None)
    with (
        serving(dataplane, loop_thread, compression=HIGH) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        responses = list(stream_method(channel)(iter(feed), timeout=30))
    assert [response.infer_response.id for response in responses] == [str(index) for index in range(len(sizes))]
    assert [len(response.infer_response.raw_output_contents[0]) for response in responses] == sizes


def test_errors_are_not_compressed(dataplane: Any, loop_thread: Any) -> None:
    with (
        serving(dataplane, loop_thread, compression=LOW) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        future = infer_method(channel).future(raw_request(b"a", "fail"), timeout=30)
        assert future.code() is grpc.StatusCode.UNAVAILABLE
