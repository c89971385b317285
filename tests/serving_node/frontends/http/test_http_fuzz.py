"""The HTTP frontend under any body, header and path: one answer for each request, and never a bug's."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_node.core.tensor import NUMPY_DTYPES
from serving_node.frontends.header_forwarding import HeaderForwarding
from serving_node.frontends.http import HttpFrontend, HttpLimits
from serving_node.wire.exchange import Buffer, HttpExchange, RequestHead
from tests.serving_node.frontends.conftest import FakeDataPlane

pytestmark = pytest.mark.fuzz

_NUMBERS = st.integers(-3, 5) | st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, 1e308, 1e-320])
_SCALARS = st.none() | st.booleans() | _NUMBERS | st.text(max_size=4)
_ANY = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
_SHAPE = st.lists(st.integers(0, 3) | st.sampled_from([2**40, 2**63 - 1, 2**63, -1]), max_size=3)
_DATATYPE = st.sampled_from([*NUMPY_DTYPES, "FP99"])
_SIZE = st.integers(0, 20) | st.sampled_from([2**40, 2**64, -1, 1.5, None, "8"])
_PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["binary_data_size", "binary_data", "classification", "shared_memory_region", "shared_memory_offset", "x"]
    ),
    _SIZE | _ANY,
    max_size=2,
)
_DATA = st.lists(_SCALARS | st.lists(_SCALARS, max_size=3), max_size=5) | _ANY


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, usual, _ANY)


_INPUT = st.fixed_dictionaries(
    {"name": _mostly(st.just("INPUT0")), "datatype": _mostly(_DATATYPE), "shape": _mostly(_SHAPE)},
    optional={"data": _DATA, "parameters": _mostly(_PARAMETERS)},
)
_REQUEST_PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["sequence_id", "sequence_start", "priority", "timeout", "binary_data_output", "triton_x", "a", "headers"]
    ),
    _SCALARS | _ANY,
    max_size=3,
)
_OUTPUT = st.fixed_dictionaries({"name": _mostly(st.just("OUTPUT0"))}, optional={"parameters": _mostly(_PARAMETERS)})
_INFER = st.fixed_dictionaries(
    {"inputs": _mostly(st.lists(_mostly(_INPUT), max_size=3))},
    optional={
        "id": _mostly(st.text(max_size=5)),
        "outputs": _mostly(st.lists(_mostly(_OUTPUT), max_size=3)),
        "parameters": _mostly(_REQUEST_PARAMETERS),
    },
)
_GENERATE = st.dictionaries(
    st.sampled_from(["INPUT0", "id", "parameters", "x"]),
    _DATA | st.dictionaries(st.sampled_from(["INPUT0", "parameters", "y"]), _DATA, max_size=2),
    max_size=4,
)
_PATHS = st.sampled_from(
    [
        ("POST", b"/v2/models/echo/infer"),
        ("POST", b"/v2/models/echo/infer"),
        ("POST", b"/v2/models/split/infer"),
        ("POST", b"/v2/models/twice/versions/1/infer"),
        ("POST", b"/v2/models/fail/generate"),
        ("POST", b"/v2/models/echo/generate"),
        ("POST", b"/v2/models/twice/generate_stream"),
        ("POST", b"/v2/models/%ff%00/infer"),
        ("POST", b"/v2/repository/index"),
        ("POST", b"/v2/logging"),
        ("POST", b"/v2/systemsharedmemory/region/r/register"),
        ("GET", b"/v2/models/echo/config"),
        ("PUT", b"/v2"),
    ]
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, dict[bytes, bytes]]:
    """A body with headers that say how to read it, rightly or not."""
    text = json.dumps(draw(_INFER | _GENERATE | _ANY)).encode()
    if draw(st.integers(0, 4)) == 0 and text:
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + draw(st.binary(max_size=2)) + text[at + 1 :]
    body = text + draw(st.binary(max_size=24))
    headers: dict[bytes, bytes] = {}
    length = draw(st.sampled_from([None, len(text), len(text), 0, len(body) + 1, -1]))
    if length is not None:
        headers[b"inference-header-content-length"] = b"%d" % length
    else:
        body = text
    coding = draw(st.sampled_from([b"", b"", b"", b"gzip", b"deflate", b"br", b"identity"]))
    if coding:
        headers[b"content-encoding"] = coding
        packed = {b"gzip": gzip.compress(body, 1), b"deflate": zlib.compress(body)}.get(coding, body)
        body = packed[: draw(st.sampled_from([len(packed), len(packed), len(packed) // 2, 0]))]
    accepted = draw(st.sampled_from([b"", b"gzip", b"deflate;q=0.5, gzip;q=x", b"*", b",;q=,"]))
    if accepted:
        headers[b"accept-encoding"] = accepted
    return body, headers


class Connection:
    """Keeps what is sent."""

    closed = False
    shutting_down = False
    peer = "test"

    def __init__(self) -> None:
        self.sent = bytearray()

    def write(self, exchange: HttpExchange, parts: list[Buffer]) -> None:
        for part in parts:
            self.sent += part

    def is_last(self, exchange: HttpExchange) -> bool:
        return True

    def abort(self) -> None:
        raise AssertionError("nothing went wrong in the middle of an answer")


_FIELDS = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=3)


@given(route=_PATHS, body=bodies(), fields=_FIELDS)
def test_one_answer_and_never_a_bug(
    route: tuple[str, bytes], body: tuple[bytes, dict[bytes, bytes]], fields: list[tuple[bytes, bytes]]
) -> None:
    async def run() -> None:
        dataplane = FakeDataPlane()
        dataplane.config.input.add(name="INPUT0", data_type="TYPE_FP32", dims=[-1])
        frontend = HttpFrontend(
            dataplane,  # type: ignore[arg-type]
            HttpLimits(max_input_bytes=4096),
            forwarding=HeaderForwarding("[a-m]"),
        )
        connection = Connection()
        head = RequestHead(route[0], route[1], b"", body[1], tuple(fields), len(body[0]), keep_alive=True, old=False)
        exchange = HttpExchange(connection, head, body[0])
        frontend.handle(exchange)
        for _ in range(3):
            await asyncio.sleep(0)
        assert exchange.done
        sent = bytes(connection.sent)
        assert sent.count(b"HTTP/1.1 ") == 1
        assert b"internal error" not in sent
        status = int(sent[9:12])
        assert status in (200, 400, 403, 404, 405, 500, 501, 503)
        content = sent.partition(b"\r\n\r\n")[2]
        if status != 200 and content.startswith(b"{"):
            assert set(json.loads(content)) == {"error"}

    asyncio.run(run())
