"""Asks a model that sends any number of answers to a request, over a gRPC stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc

from serving_node.contract.proto import grpc_service_pb2 as pb

from .facts import Facts, Raw, facts_of, wanted_in
from .unary import ANSWER_SECONDS, MOST_REFUSALS

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_FINAL, _EMPTY_FINAL = "triton_final_response", "triton_enable_empty_final_response"
_MOST_ANSWERS = 10_000
_MOST_KINDS = 16
_MOST_TIMES = 10_000


class _Answers:
    """What came to one request: when, and whether it was the last; seconds since the request was sent."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.took = 0.0
        self.is_final = False
        self.error = ""


class StreamDoor:
    """Requests one after the other, each on a stream of its own."""

    def __init__(self, port: int) -> None:
        channel = grpc.insecure_channel(
            f"127.0.0.1:{port}",
            options=[
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ],
        )
        self._call = channel.stream_stream(
            _METHOD,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request once; return its error, milliseconds, facts of its first answer, and of the stream.

        Answers with the same names, types and shapes count as one kind, of which the figures are put together.
        """
        answers = _Answers()
        kinds: list[list[Facts]] = []
        for place, response in enumerate(self._responses(_message(request), answers)):
            facts = facts_of(_outputs(response), wanted_in(request) if not place else [])
            _take(kinds, facts)
        times = answers.times
        stream = {
            "answers": len(times),
            "is_final": answers.is_final,
            "first_milliseconds": round(times[0] * 1000, 3) if times else None,
            "between_milliseconds": [round(gap * 1000, 3) for gap in _gaps(times)[:_MOST_TIMES]],
            "other_outputs": kinds[1:],
        }
        milliseconds = round(answers.took * 1000, 3)
        outputs = kinds[0] if kinds else []
        return {"error": answers.error, "milliseconds": milliseconds, "outputs": outputs, "stream": stream}

    def profile(self, cell: dict[str, Any]) -> dict[str, Any]:
        """Send the requests in turn, one at a time, until the time is up; the first round only warms up."""
        messages = [_message(one) for one in cell["requests"]]
        latencies: list[float] = []
        firsts: list[float] = []
        between: list[float] = []
        counts: list[int] = []
        failures, refusal = 0, ""
        end = 0.0
        while failures < MOST_REFUSALS and len(latencies) < _MOST_TIMES:
            for message in messages:
                answers = _Answers()
                for _response in self._responses(message, answers):
                    pass
                if answers.error or not answers.is_final:
                    failures, refusal = failures + 1, answers.error or f"not finished after {ANSWER_SECONDS:.0f} s"
                elif end:
                    latencies.append(round(answers.took, 7))
                    firsts += [round(time, 7) for time in answers.times[:1]]
                    between += [round(gap, 7) for gap in _gaps(answers.times)[: _MOST_TIMES - len(between)]]
                    counts.append(len(answers.times))
            now = time.perf_counter()
            end = end or now + cell["seconds"]
            if now > end:
                break
        found = {"batch": cell["batch"], "latencies": latencies, "failures": failures, "refusal": refusal}
        return {**found, "stream": {"firsts": firsts, "between": between, "counts": counts}}

    def _responses(self, message: pb.ModelInferRequest, answers: _Answers) -> Iterator[pb.ModelInferResponse]:
        """Yield the answers to a request, and note how they came."""
        began = time.perf_counter()
        call = self._call(iter([message]), timeout=ANSWER_SECONDS)
        try:
            for response in call:
                took = answers.took = time.perf_counter() - began
                if response.error_message:
                    answers.error = response.error_message
                    break
                answer = response.infer_response
                answers.is_final = answer.parameters[_FINAL].bool_param if _FINAL in answer.parameters else False
                if answer.outputs or not answers.is_final:
                    answers.times.append(took)
                    yield answer
                if answers.is_final or len(answers.times) >= _MOST_ANSWERS:
                    break
        except grpc.RpcError as error:
            answers.took = time.perf_counter() - began
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                answers.error = str(error.details() or error.code())
        finally:
            call.cancel()


def _message(request: dict[str, Any]) -> pb.ModelInferRequest:
    """Return a request that was written for HTTP, with binary tensors, as a message."""
    body = Path(request["file"]).read_bytes()
    place = request["head"] or len(body)
    document = json.loads(body[:place])
    message = pb.ModelInferRequest(model_name="model", id=str(document.get("id", "")))
    for name, value in {**document.get("parameters", {}), _EMPTY_FINAL: True}.items():
        if not name.startswith("binary_data"):
            _set(message.parameters[name], value)
    for one in document["inputs"]:
        size = one["parameters"]["binary_data_size"]
        message.inputs.add(name=one["name"], datatype=one["datatype"], shape=one["shape"])
        message.raw_input_contents.append(body[place : place + size])
        place += size
    for one in document.get("outputs", ()):
        output = message.outputs.add(name=one["name"])
        for name, value in one.get("parameters", {}).items():
            if not name.startswith("binary_data"):
                _set(output.parameters[name], value)
    return message


def _set(parameter: pb.InferParameter, value: Any) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = str(value)


def _outputs(response: pb.ModelInferResponse) -> list[Raw]:
    raw = [*response.raw_output_contents]
    return [
        (output.name, output.datatype, [*output.shape], raw[place] if place < len(raw) else b"")
        for place, output in enumerate(response.outputs)
    ]


def _take(kinds: list[list[Facts]], facts: list[Facts]) -> None:
    """Put the facts of an answer to those of its kind."""
    for kind in kinds:
        if [_kind(one) for one in kind] == [_kind(one) for one in facts]:
            for known, new in zip(kind, facts, strict=True):
                _put_together(known, new)
            return
    if len(kinds) < _MOST_KINDS:
        kinds.append(facts)


def _kind(facts: Facts) -> tuple[Any, ...]:
    return facts["name"], facts["datatype"], facts["shape"]


def _put_together(known: Facts, new: Facts) -> None:
    known["nan"] += new["nan"]
    known["inf"] += new["inf"]
    for end, choose in (("least", min), ("most", max)):
        values = [one[end] for one in (known, new) if one[end] is not None]
        known[end] = choose(values) if values else None


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]
