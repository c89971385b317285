"""ModelStreamInfer: what the reference server was seen to answer, in order and in every way a model may answer."""

from __future__ import annotations

import struct
from typing import Any

import grpc
import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto import grpc_service_pb2 as pb
from serving_node.core.errors import InferenceError
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.frontends.grpc import stream

from .calls import Feed, infer_method, raw_request, serving, stream_method
from .raw_client import DATA, HEADERS, RawClient, frame

Parts = list[tuple[str, bool]]  # kind ("data", "empty", "error" or "flag") and whether it is final


class ScriptedDataPlane:
    """Answers each request as the script for its model says; model ``hold`` never, ``decoupled...`` is decoupled."""

    def __init__(self, inner: Any, scripts: dict[str, Parts]) -> None:
        self._inner = inner
        self._scripts = scripts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def infer(self, request: InferenceRequest) -> None:
        request.decoupled = request.model_name.startswith("decoupled")
        if request.decoupled and request.refuse_decoupled:
            raise InferenceError(ErrorCode.UNSUPPORTED, request.refuse_decoupled)
        script = self._scripts.get(request.model_name)
        if script is None:
            self._inner.infer(request)
            return
        for kind, final in script:
            response = InferenceResponse(request.model_name, "1", request.id, final=final)
            if kind == "data":
                response.outputs = [Tensor("OUT", "UINT8", (1,), b"x")]
            elif kind == "error":
                response.error = InferenceError(ErrorCode.UNAVAILABLE, "it failed")
            response.flag_only = kind == "flag"
            request.on_response(response)


def shown(message: pb.ModelStreamInferResponse) -> tuple[Any, ...]:
    """Return error, id, model, version, number of outputs and the final flag (None without the parameter)."""
    answer = message.infer_response
    key = "triton_final_response"
    final = answer.parameters[key].bool_param if key in answer.parameters else None
    return (
        message.error_message,
        answer.id,
        answer.model_name,
        answer.model_version,
        len(answer.raw_output_contents),
        final,
    )


def call(port: int, *requests: pb.ModelInferRequest, metadata: Any = None) -> tuple[list[tuple[Any, ...]], str, str]:
    """Send requests on one stream and return what came back, and the status and details of its end."""
    feed = Feed()
    for request in (*requests, None):
        feed.put(request)
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        responses = stream_method(channel)(iter(feed), timeout=30, metadata=metadata)
        got: list[tuple[Any, ...]] = []
        try:
            got.extend(shown(message) for message in responses)
        except grpc.RpcError:
            feed.put(None)
        return got, responses.code().name, responses.details()


def wanting_empty(request: pb.ModelInferRequest, version: str = "") -> pb.ModelInferRequest:
    request.model_version = version
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


ROW = ("", "7", "decoupled", "1", 1, False)


@pytest.mark.parametrize(
    ("script", "plain", "last_when_wanted"),
    [
        ([("flag", True)], [], ("", "7", "decoupled", "", 0, True)),
        ([("data", False), ("flag", True)], [ROW], ("", "7", "decoupled", "", 0, True)),
        ([("data", True)], [(*ROW[:5], True)], None),
        (
            [("empty", False), ("flag", True)],
            [("", "7", "decoupled", "1", 0, False)],
            ("", "7", "decoupled", "", 0, True),
        ),
        ([("empty", True)], [("", "7", "decoupled", "1", 0, True)], None),
        (
            [("data", False), ("error", False), ("flag", True)],
            [ROW, ("it failed", "7", "decoupled", "", 0, False)],
            ("", "7", "decoupled", "", 0, True),
        ),
        ([("data", False), ("error", True)], [ROW, ("it failed", "7", "decoupled", "", 0, True)], None),
    ],
)
def test_responses_of_a_decoupled_model(
    dataplane: Any, loop_thread: Any, script: Parts, plain: list[Any], last_when_wanted: Any
) -> None:
    with serving(ScriptedDataPlane(dataplane, {"decoupled": script}), loop_thread) as port:
        got = call(port, raw_request(b"a", "decoupled", "7"))
        assert got == (plain, "OK", "")
        extra = [last_when_wanted] if last_when_wanted else []
        got = call(port, wanting_empty(raw_request(b"a", "decoupled", "7")))
        assert got == ([*plain, *extra], "OK", "")
        # errors and empty finals name the version that the client asked for
        got = call(port, wanting_empty(raw_request(b"a", "decoupled", "7"), "3"))
        assert {row[3] for row in got[0]} <= {"1", "3"}
        assert [row[3] for row in got[0] if row[0]] == ["3" for row in plain if row[0]]


def test_errors_before_a_model_has_the_request(dataplane: Any, loop_thread: Any) -> None:
    bad = raw_request(b"a", "echo", "2")
    bad.parameters["timeout"].string_param = "soon"
    with serving(dataplane, loop_thread) as port:
        got, status, _ = call(port, raw_request(b"a", "nothing", "1"), bad, raw_request(b"a", "echo", "3"))
    assert got == [
        ("Request for unknown model: 'nothing' is not found", "1", "", "", 0, None),
        ("invalid value type for 'timeout' parameter, expected int64_param.", "2", "", "", 0, None),
        ("", "3", "echo", "1", 1, True),
    ]
    assert status == "OK"


def test_the_real_status_ends_the_stream_when_the_client_wants_it(dataplane: Any, loop_thread: Any) -> None:
    scripts: dict[str, Parts] = {"decoupled": [("data", False), ("error", False), ("data", False), ("flag", True)]}
    wanted = [("triton_grpc_error", "true")]
    with serving(ScriptedDataPlane(dataplane, scripts), loop_thread) as port:
        requests = (raw_request(b"a", "nothing", "1"), raw_request(b"a", "decoupled", "2"))
        got, status, details = call(port, *requests, metadata=wanted)
        # what no model has got stays a message of the stream
        assert [row[:2] for row in got] == [("Request for unknown model: 'nothing' is not found", "1"), ("", "2")]
        assert (status, details) == ("UNAVAILABLE", "it failed")
        got, status, _ = call(port, *requests, metadata=[("triton_grpc_error", "1")])
        assert (len(got), status) == (4, "OK")


def test_the_real_status_cancels_what_else_runs(dataplane: Any, loop_thread: Any) -> None:
    feed = Feed()
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        responses = stream_method(channel)(iter(feed), timeout=30, metadata=[("triton_grpc_error", "true")])
        feed.put(raw_request(b"a", "hold", "1"))
        (held,) = dataplane.wait_for(1)
        feed.put(raw_request(b"a", "fail", "2"))
        with pytest.raises(grpc.RpcError):
            list(responses)
        feed.put(None)
        assert (responses.code().name, responses.details()) == ("UNAVAILABLE", "Exceeds maximum queue size")
        assert held.cancelled


def test_one_response_waits_for_earlier_requests_and_those_of_decoupled_models_do_not(
    dataplane: Any, loop_thread: Any
) -> None:
    scripts: dict[str, Parts] = {
        "decoupled": [("data", False), ("data", True)],
        "split": [("data", False), ("flag", True)],
    }
    feed = Feed()
    with (
        serving(ScriptedDataPlane(dataplane, scripts), loop_thread) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        responses = stream_method(channel)(iter(feed), timeout=30)
        for model, request_id in (("hold", "1"), ("split", "2"), ("decoupled", "3"), ("echo", "4")):
            feed.put(raw_request(b"a", model, request_id))
        (held, _) = dataplane.wait_for(2)
        feed.put(None)
        first = [next(responses).infer_response.id for _ in range(2)]
        loop_thread.call(lambda: dataplane.answer(held))
        assert first + [response.infer_response.id for response in responses] == ["3", "3", "1", "2", "4"]


def test_large_typed_contents_keep_their_place(dataplane: Any, loop_thread: Any) -> None:
    large = pb.ModelInferRequest(model_name="echo", id="large")
    tensor = large.inputs.add(name="INPUT0", datatype="INT32", shape=[1, 600_000])
    tensor.contents.int_contents.extend(range(600_000))
    wrong = pb.ModelInferRequest()
    wrong.CopyFrom(large)
    wrong.inputs[0].datatype, wrong.id = "FP32", "wrong"
    small = raw_request(b"a", "echo", "small")
    with serving(dataplane, loop_thread) as port:
        got, status, _ = call(port, large, small, wrong, small)
    assert [row[1] for row in got] == ["large", "small", "wrong", "small"]
    assert "unexpected explicit tensor data" in got[2][0]
    assert status == "OK"


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_compressed_messages_keep_their_place(dataplane: Any, loop_thread: Any, size: int) -> None:
    feed = Feed()
    for data, request_id in ((bytes(size), "1"), (b"a", "2"), (bytes(size), "3"), (b"", "4")):
        feed.put(raw_request(data, "echo", request_id))
    feed.put(None)
    options = [("grpc.max_receive_message_length", -1)]
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}", options) as channel:
        responses = stream_method(channel)(iter(feed), timeout=30, compression=grpc.Compression.Gzip)
        got = [(r.infer_response.id, len(r.infer_response.raw_output_contents[0])) for r in responses]
    assert got == [("1", size), ("2", 1), ("3", size), ("4", 0)]


def test_requests_wait_while_many_are_unanswered(
    dataplane: Any, loop_thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_MAX_PENDING", 4)
    feed = Feed()
    for index in range(20):
        feed.put(raw_request(b"a", "hold", str(index)))
    feed.put(None)
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        responses = stream_method(channel)(iter(feed), timeout=30)
        seen = 0
        while seen < 20:
            requests = dataplane.wait_for(seen + 1)
            assert len(requests) <= seen + 4
            loop_thread.call(lambda request=requests[seen]: dataplane.answer(request))
            seen += 1
        assert [response.infer_response.id for response in responses] == [str(index) for index in range(20)]


def test_a_client_that_does_not_read_is_cut_off(
    dataplane: Any, loop_thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_MAX_QUEUED_BYTES", 1 << 20)
    feed = Feed()
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        responses = stream_method(channel)(iter(feed), timeout=30)
        feed.put(raw_request(b"abc", "hold", "1"))
        (request,) = dataplane.wait_for(1)

        def flood() -> None:
            request.decoupled = True
            for _ in range(200):
                outputs = [Tensor("OUT", "UINT8", (1 << 17,), bytes(1 << 17))]
                request.on_response(InferenceResponse("hold", "1", "1", outputs, final=False))

        loop_thread.call(flood)
        with pytest.raises(grpc.RpcError):
            list(responses)
        feed.put(None)
        assert responses.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert request.cancelled


@pytest.mark.parametrize("second", [b"\1\0\0\0\1x", b"\2\0\0\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\1\xff"])
def test_a_message_that_ends_the_stream_cancels_what_runs(dataplane: Any, loop_thread: Any, second: bytes) -> None:
    raw = raw_request(b"a", "hold").SerializeToString()
    with serving(dataplane, loop_thread) as port, RawClient(port) as client:
        block = client.headers("/inference.GRPCInferenceService/ModelStreamInfer", grpc_encoding="gzip")
        first = struct.pack(">BI", 0, len(raw)) + raw
        client.send(frame(HEADERS, 4, 1, block), frame(DATA, 0, 1, first), frame(DATA, 0, 1, second))
        while not any(kind == HEADERS and flags & 1 for kind, flags, _, _ in client.read()):
            pass
        assert [request.cancelled for request in dataplane.requests] == [True]


def test_garbage_ends_the_stream(dataplane: Any, loop_thread: Any) -> None:
    with serving(dataplane, loop_thread) as port, grpc.insecure_channel(f"localhost:{port}") as channel:
        method = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        responses = method(iter([b"\xff\xff\xff"]), timeout=30)
        with pytest.raises(grpc.RpcError):
            list(responses)
        assert (responses.code().name, responses.details()) == ("INTERNAL", "Unable to parse request")


@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ([("data", False), ("flag", True)], "OK", ""),
        ([("empty", True)], "OK", ""),
        ([("flag", True)], "INTERNAL", "expected a single response, got 0"),
        ([("data", False), ("data", False), ("flag", True)], "INTERNAL", "expected a single response, got 2"),
        ([("data", False), ("error", True)], "INTERNAL", "expected a single response, got 2"),
        ([("error", False), ("flag", True)], "UNAVAILABLE", "it failed"),
    ],
)
def test_a_unary_call_has_one_response(dataplane: Any, loop_thread: Any, script: Parts, status: str, text: str) -> None:
    with (
        serving(ScriptedDataPlane(dataplane, {"m": script, "decoupled": script}), loop_thread) as port,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        future = infer_method(channel).future(raw_request(b"a", "m"), timeout=30)
        assert (future.code().name, future.details()) == (status, text)
        future = infer_method(channel).future(raw_request(b"a", "decoupled"), timeout=30)
        sentence = "ModelInfer RPC doesn't support models with decoupled transaction policy"
        assert (future.code().name, future.details()) == ("UNIMPLEMENTED", sentence)
