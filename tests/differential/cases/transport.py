"""HTTP and gRPC themselves: paths, verbs, bodies, headers, encodings, metadata, deadlines."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.cases.infer import PLAIN, add_sub
from tests.differential.steps import Case, Grpc, Http, RawHttp
from tests.differential.tensors import Out, T, flat, grpc_raw, http_binary, http_json, infer_message
from tests.differential.views import status_only

_JSON = {"Content-Type": "application/json"}
_GOOD = http_json("plain", PLAIN)
_BINARY = http_binary("plain", PLAIN)
_LARGE = http_json("add_sub", add_sub(8))
_DOCUMENT: dict[str, Any] = json.loads(_GOOD.body)


def _http(id: str, *requests: Http | RawHttp, models: tuple[str, ...] = ("plain",), **more: Any) -> Case:
    return Case(f"http-{id}", requests, models, **more)


def _post(body: bytes, headers: Mapping[str, str] = _JSON, model: str = "plain") -> Http:
    return Http("POST", f"/v2/models/{model}/infer", body, headers)


def _routes() -> list[Case]:
    cases = []
    paths = {
        "GET": (
            "/",
            "/v1",
            "/v2/",
            "//v2",
            "/v2/nothing",
            "/v2/health",
            "/v2/health/",
            "/v2/health/live?x=1",
            "/v2/health/live/",
            "/v2/models",
            "/v2/models/",
            "/v2/models/plain/",
            "/v2/models/plain/infer",
            "/v2/models/plain/versions",
            "/v2/models/plain/versions/",
            "/v2/models/plain/versions/abc",
            "/v2/models/plain/versions/-1",
            "/v2/models/plain/versions/1/",
            "/v2/models/plain/versions/01",
            "/v2/models/plain/versions/99999999999999999999",
            "/v2/models/plain/nothing",
            "/v2/models//ready",
            "/v2/models/pl%61in",
            "/v2/models/a%2Fb",
            "/v2/models/plain?query",
            "/v2/models/no such/ready",
            "/v2/repository/index",
            "/v2/models/plain/versions/1/trace/setting",
            "/V2",
            "/metrics",
            "/v2/models/plain/generate",
            "/v2/models/stats/",
        ),
        "POST": (
            "/v2",
            "/v2/health/live",
            "/v2/models/plain",
            "/v2/models/plain/config",
            "/v2/models/plain/stats",
            "/v2/models/plain/versions/abc/infer",
            "/v2/models/plain/ready",
        ),
        "PUT": ("/v2", "/v2/models/plain/infer", "/v2/nothing"),
        "DELETE": ("/v2/models/plain", "/v2/repository/models/plain/load"),
        "OPTIONS": ("/v2",),
        "PATCH": ("/v2/logging",),
        "HEAD": ("/v2", "/v2/health/ready", "/v2/nothing"),
    }
    for verb, of_verb in paths.items():
        cases += [_http(f"route-{verb}-{path}", Http(verb, path)) for path in of_verb]
    return cases


def _json_bodies() -> list[Case]:
    def changed(**more: Any) -> bytes:
        return json.dumps({**_DOCUMENT, **more}).encode()

    def first(**more: Any) -> bytes:
        return changed(inputs=[{**_DOCUMENT["inputs"][0], **more}, _DOCUMENT["inputs"][1]])

    def lacking(key: str) -> bytes:
        entry = {k: v for k, v in _DOCUMENT["inputs"][0].items() if k != key}
        return changed(inputs=[entry, _DOCUMENT["inputs"][1]])

    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    bodies = {
        "empty-object": b"{}",
        "array": b"[]",
        "text": b'"infer"',
        "number": b"1",
        "not-json": b"hello",
        "cut": _GOOD.body[:-5],
        "trailing": _GOOD.body + b"x",
        "trailing-space": _GOOD.body + b" \n",
        "two-documents": _GOOD.body + _GOOD.body,
        "single-quotes": b"{'inputs': []}",
        "comment": b"{/* */}",
        "byte-order-mark": b"\xef\xbb\xbf" + _GOOD.body,
        "not-utf8": _GOOD.body.replace(b"INPUT0", b"INPUT\xff"),
        "nan": _GOOD.body.replace(b"[1, -2", b"[NaN, -2"),
        "inputs-null": changed(inputs=None),
        "inputs-object": changed(inputs={}),
        "inputs-empty": changed(inputs=[]),
        "inputs-of-numbers": changed(inputs=[1]),
        "inputs-twice": _GOOD.body[:-1] + b', "inputs": []}',
        "id-number": changed(id=7),
        "id-null": changed(id=None),
        "id-empty": changed(id=""),
        "id-unicode": changed(id="\u2603"),
        "id-long": changed(id="x" * 5000),
        "outputs-null": changed(outputs=None),
        "outputs-object": changed(outputs={}),
        "outputs-empty": changed(outputs=[]),
        "outputs-of-text": changed(outputs=["OUTPUT0"]),
        "output-no-name": changed(outputs=[{}]),
        "output-name-number": changed(outputs=[{"name": 1}]),
        "output-parameters-array": changed(outputs=[{"name": "OUTPUT0", "parameters": []}]),
        "output-unknown-parameter": changed(outputs=[{"name": "OUTPUT0", "parameters": {"colour": "red"}}]),
        "output-binary-text": changed(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": "yes"}}]),
        "parameters-null": changed(parameters=None),
        "parameters-array": changed(parameters=[]),
        "parameters-text": changed(parameters="x"),
        "parameter-null": changed(parameters={"x": None}),
        "parameter-object": changed(parameters={"x": {}}),
        "parameter-array": changed(parameters={"x": [1]}),
        "unknown-member": changed(colour="red"),
        "name-number": first(name=1),
        "no-name": lacking("name"),
        "no-shape": lacking("shape"),
        "no-datatype": lacking("datatype"),
        "no-data": lacking("data"),
        "shape-text": first(shape="4"),
        "shape-of-text": first(shape=["4"]),
        "shape-of-fraction": first(shape=[4.0]),
        "shape-null": first(shape=None),
        "shape-object": first(shape={}),
        "shape-nested": first(shape=[[4]]),
        "shape-huge": first(shape=[2**64]),
        "datatype-number": first(datatype=3),
        "datatype-lower": first(datatype="int32"),
        "data-text": first(data="1234"),
        "data-number": first(data=1),
        "data-null": first(data=None),
        "data-object": first(data={"0": 1}),
        "data-nested": first(data=[[1, 2], [3, 4]]),
        "data-nested-unevenly": first(data=[[1, 2, 3], [4]]),
        "data-mixed-depth": first(data=[1, [2, 3], 4]),
        "data-nested-deep": first(data=deep),
        "data-empty-lists": first(data=[[], []]),
        "data-and-binary": first(parameters={"binary_data_size": 16}),
        "data-and-shared-memory": first(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16}),
        "tensor-parameters-array": first(parameters=[]),
        "tensor-unknown-parameter": first(parameters={"colour": "red"}),
        "binary-size-without-header": json.dumps(
            {"inputs": [{"name": "INPUT0", "shape": [4], "datatype": "INT32", "parameters": {"binary_data_size": 16}}]}
        ).encode(),
    }
    return [_http(f"json-{id}", _post(body)) for id, body in bodies.items()]


def _binary_bodies() -> list[Case]:
    size = int(_BINARY.headers["Inference-Header-Content-Length"])
    document = json.loads(_BINARY.body[:size])

    def with_header(value: str, body: bytes = _BINARY.body) -> Http:
        return dataclasses.replace(
            _BINARY, body=body, headers={**_BINARY.headers, "Inference-Header-Content-Length": value}
        )

    def with_size(value: Any) -> Http:
        document["inputs"][0]["parameters"] = {"binary_data_size": value}
        text = json.dumps(document).encode()
        return with_header(str(len(text)), text + _BINARY.body[size:])

    mixed = json.loads(_GOOD.body)
    mixed["inputs"][1] = {
        "name": "INPUT1",
        "shape": [4],
        "datatype": "INT32",
        "parameters": {"binary_data_size": 16},
    }
    text = json.dumps(mixed).encode()
    lower = {"content-type": "x", "inference-header-content-length": str(size)}
    return [
        _http("binary", _BINARY),
        _http("binary-header-lower-case", dataclasses.replace(_BINARY, headers=lower)),
        _http("binary-and-json", with_header(str(len(text)), text + _BINARY.body[size : size + 16])),
        *(
            _http(f"binary-header-{value}", with_header(value))
            for value in (
                "-1",
                "99999",
                "abc",
                "",
                "1",
                str(size - 1),
                str(size + 1),
                str(len(_BINARY.body)),
                f" {size}",
                f"{size}x",
                "+5",
                "1e3",
                "99999999999999999999",
            )
        ),
        _http("binary-few-bytes", with_header(str(size), _BINARY.body[:-3])),
        _http("binary-many-bytes", with_header(str(size), _BINARY.body + b"abc")),
        *(
            _http(f"binary-size-{id}", with_size(value))
            for id, value in (
                ("text", "16"),
                ("negative", -1),
                ("zero", 0),
                ("small", 15),
                ("large", 17),
                ("huge", 2**63),
                ("fraction", 16.0),
                ("null", None),
                ("bool", True),
            )
        ),
        _http(
            "binary-one-output",
            http_binary(
                "plain", PLAIN, [Out("OUTPUT0", {"binary_data": True}), Out("OUTPUT1", {"binary_data": False})]
            ),
        ),
        _http(
            "binary-all-but-one",
            http_binary(
                "plain",
                PLAIN,
                [Out("OUTPUT0"), Out("OUTPUT1", {"binary_data": False})],
                parameters={"binary_data_output": True},
            ),
        ),
    ]


def _raw(body: bytes, model: str, **headers: str) -> Http:
    return Http(
        "POST",
        f"/v2/models/{model}/infer",
        body,
        {"Inference-Header-Content-Length": "0", **{name.replace("_", "-"): value for name, value in headers.items()}},
    )


def _raw_bodies() -> list[Case]:
    two = add_sub()[0].bytes()
    return [
        _http("raw", _raw(T("", "FP32", [], [1.0, 2.0, 3.0]).bytes(), "raw"), models=("raw",)),
        _http("raw-text", _raw(b"hello", "text"), models=("text",)),
        _http("raw-text-empty", _raw(b"", "text"), models=("text",)),
        _http("raw-empty", _raw(b"", "raw"), models=("raw",)),
        _http("raw-matrix", _raw(b"\1\0" * 6, "raw_matrix"), models=("raw_matrix",)),
        _http("raw-matrix-odd", _raw(b"\1\0" * 5, "raw_matrix"), models=("raw_matrix",)),
        _http("raw-odd-bytes", _raw(b"\0" * 5, "raw"), models=("raw",)),
        _http("raw-two-variable", _raw(b"\0" * 8, "raw_two"), models=("raw_two",)),
        _http("raw-two-inputs", _raw(two, "add_sub"), models=("add_sub",)),
        _http("raw-text-variable", _raw(b"hello", "texts"), models=("texts",)),
        _http("raw-fixed", _raw(b"\1\0\0\0", "v_latest"), models=("v_latest",)),
        _http("raw-fixed-long", _raw(b"\1\0\0\0" * 2, "v_latest"), models=("v_latest",)),
        _http("raw-unknown-model", _raw(b"x", "nobody"), models=()),
        _http(
            "raw-version",
            dataclasses.replace(_raw(b"hello", "text"), path="/v2/models/text/versions/1/infer"),
            models=("text",),
        ),
        _http("no-body", Http("POST", "/v2/models/text/infer"), models=("text",)),
        _http("no-body-two-inputs", Http("POST", "/v2/models/plain/infer")),
    ]


def _encodings() -> list[Case]:
    def encoded(name: str, body: bytes, of: Http = _GOOD) -> Http:
        return dataclasses.replace(of, body=body, headers={**of.headers, "Content-Encoding": name})

    def accepting(value: str, of: Http = _LARGE) -> Http:
        return dataclasses.replace(of, headers={**of.headers, "Accept-Encoding": value})

    raw = zlib.compressobj(wbits=-15)
    raw_deflate = raw.compress(_GOOD.body) + raw.flush()
    packed = gzip.compress(_GOOD.body)
    return [
        _http("encoding-gzip", encoded("gzip", packed)),
        _http("encoding-gzip-binary", encoded("gzip", gzip.compress(_BINARY.body), _BINARY)),
        _http("encoding-deflate", encoded("deflate", zlib.compress(_GOOD.body))),
        _http("encoding-deflate-bare", encoded("deflate", raw_deflate)),
        _http("encoding-identity", encoded("identity", _GOOD.body)),
        _http("encoding-brotli", encoded("br", b"x")),
        _http("encoding-unknown", encoded("zstd", b"x")),
        _http("encoding-two", encoded("gzip, deflate", packed)),
        _http("encoding-upper", encoded("GZIP", packed)),
        _http("encoding-empty", encoded("", _GOOD.body)),
        _http("encoding-gzip-of-plain", encoded("gzip", _GOOD.body)),
        _http("encoding-gzip-cut", encoded("gzip", packed[:-12])),
        _http("encoding-gzip-trailing", encoded("gzip", packed + b"xx")),
        _http(
            "encoding-gzip-two-members",
            encoded("gzip", gzip.compress(_GOOD.body[:20]) + gzip.compress(_GOOD.body[20:])),
        ),
        _http("encoding-gzip-empty", encoded("gzip", b"")),
        *(
            _http(f"accept-{value}", accepting(value), models=("add_sub",))
            for value in (
                "gzip",
                "deflate",
                "gzip, deflate",
                "deflate, gzip",
                "identity",
                "*",
                "br",
                "gzip;q=0",
                "gzip;q=0.5, deflate;q=0.8",
                "gzip;q=0.5, identity;q=0.8",
                "identity;q=0",
                "*;q=0",
                "",
                "GZIP",
                "gzip;q=x",
                "deflate;q=0.3, gzip;q=0.3",
                "br, gzip;q=0.1",
            )
        ),
        _http("accept-gzip-binary", accepting("gzip", http_binary("add_sub", add_sub(8))), models=("add_sub",)),
        _http("accept-gzip-small", accepting("gzip", _GOOD)),
        _http("accept-gzip-error", accepting("gzip", _post(b"{}"))),
        _http("accept-gzip-metadata", accepting("gzip", Http("GET", "/v2/models/plain"))),
    ]


def _framing() -> list[Case]:
    body = _GOOD.body
    head = b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    half = len(body) // 2
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"

    def chunk(part: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(part), part)

    live = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    return [
        _http("split-body", RawHttp((head + length, body[:half], body[half:]), method="POST")),
        _http(
            "chunked", RawHttp((head + chunked + chunk(body[:half]), chunk(body[half:]) + b"0\r\n\r\n"), method="POST")
        ),
        _http("chunked-trailers", RawHttp((head + chunked + chunk(body) + b"0\r\nX: y\r\n\r\n",), method="POST")),
        _http("chunked-bad-size", RawHttp((head + chunked + b"zz\r\nabc\r\n0\r\n\r\n",), method="POST")),
        _http(
            "chunked-extension",
            RawHttp((head + chunked + b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(body), body),), method="POST"),
        ),
        _http("continue", RawHttp((head + b"Expect: 100-continue\r\n" + length + body,), method="POST")),
        _http("pipelined", RawHttp((live + live + head + length + body + live,), answers=4)),
        _http("http-1.0", RawHttp((b"GET /v2/health/live HTTP/1.0\r\n\r\n",))),
        _http("http-1.0-keep-alive", RawHttp((b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",))),
        _http("connection-close", RawHttp((live.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),))),
        _http("no-host", RawHttp((b"GET /v2/health/live HTTP/1.1\r\n\r\n",))),
        _http("bad-line", RawHttp((b"hello\r\n\r\n",))),
        _http("bad-version", RawHttp((b"GET /v2 HTTP/9.9\r\n\r\n",))),
        _http("bad-header", RawHttp((b"GET /v2/health/live HTTP/1.1\r\nno colon\r\n\r\n",))),
        _http("bad-length", RawHttp((head + b"Content-Length: abc\r\n\r\n",), method="POST")),
        _http("two-lengths", RawHttp((head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",), method="POST")),
        _http("absolute-target", RawHttp((b"GET http://x/v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",))),
        _http("lower-case-verb", RawHttp((b"get /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",))),
        _http("unknown-verb", RawHttp((b"BREW /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",))),
        _http("body-on-get", Http("GET", "/v2/health/live", b"hello")),
        _http(
            "after-an-error",
            RawHttp(
                (b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" + live,), answers=2
            ),
        ),
    ]


def _grpc(id: str, *calls: Grpc, models: tuple[str, ...] = ("plain",), **more: Any) -> Case:
    return Case(f"grpc-{id}", calls, models, **more)


def _messages() -> list[Case]:
    def changed(change: Any, model: str = "plain", inputs: list[T] = PLAIN, **more: Any) -> Grpc:
        message = infer_message(model, inputs, **more)
        change(message)
        return Grpc("ModelInfer", message)

    def typed(field: str, value: Any) -> Grpc:
        def change(message: Any) -> None:
            del message.raw_input_contents[:]
            getattr(message.inputs[0].contents, field).extend([value] * 4)
            message.inputs[1].contents.int_contents.extend([1] * 4)

        return changed(change)

    def both(message: Any) -> None:
        message.inputs[0].contents.int_contents.extend([1] * 4)

    def half(message: Any) -> None:
        del message.raw_input_contents[1:]
        message.inputs[1].contents.int_contents.extend([1] * 4)

    good = infer_message("plain", PLAIN)
    return [
        _grpc("raw-extra", changed(lambda m: m.raw_input_contents.append(b"abc"))),
        _grpc("raw-few", changed(lambda m: m.raw_input_contents.pop())),
        _grpc("raw-none", changed(lambda m: m.ClearField("raw_input_contents"))),
        _grpc("raw-and-typed", changed(both)),
        _grpc("raw-then-typed", changed(half)),
        *(
            _grpc(f"typed-{field}", typed(f"{field}_contents", value))
            for field, value in (
                ("bool", True),
                ("uint", 1),
                ("int64", 1),
                ("uint64", 1),
                ("fp32", 1.0),
                ("fp64", 1.0),
                ("bytes", b"abcd"),
                ("int", -1),
            )
        ),
        *(
            _grpc(
                f"typed-beyond-{kind}",
                Grpc(
                    "ModelInfer",
                    infer_message("types", [T(f"IN_{kind}", kind, [2], values)], [Out(f"OUT_{kind}")], typed=True),
                ),
                models=("types",),
            )
            for kind, values in (
                ("INT8", [300, -300]),
                ("UINT8", [300, 1]),
                ("INT16", [70000, 1]),
                ("UINT16", [70000, 1]),
            )
        ),
        _grpc("no-model-name", changed(lambda m: m.ClearField("model_name"))),
        _grpc("empty", Grpc("ModelInfer", pb.ModelInferRequest())),
        _grpc("broken-message", Grpc("ModelInfer", b"\xff\xff\xff\xff")),
        _grpc("cut-message", Grpc("ModelInfer", good.SerializeToString()[:-3])),
        _grpc("unknown-field", Grpc("ModelInfer", good.SerializeToString() + b"\xc2\x3e\x03abc")),
        _grpc("not-utf8", Grpc("ModelInfer", good.SerializeToString().replace(b"INPUT0", b"INPUT\xff"))),
        _grpc("compressed", dataclasses.replace(grpc_raw("plain", PLAIN), compressed=True)),
        _grpc("metadata", grpc_raw("plain", PLAIN, metadata=(("x-thing", "1"), ("authorization", "Bearer x")))),
        _grpc(
            "parameter-unset", grpc_raw("look", [T("IN", "INT32", [1], [1])], parameters={"x": None}), models=("look",)
        ),
        _grpc(
            "parameter-double", grpc_raw("look", [T("IN", "INT32", [1], [1])], parameters={"x": 1.5}), models=("look",)
        ),
        _grpc(
            "parameter-uint64",
            grpc_raw("look", [T("IN", "INT32", [1], [1])], parameters={"x": 2**64 - 1}),
            models=("look",),
        ),
        _grpc(
            "deadline",
            Grpc(
                "ModelInfer",
                infer_message("sleep", [T("SECONDS", "FP32", [1, 1], [1.0])]),
                timeout=0.2,
                view=status_only,
            ),
            models=("sleep",),
        ),
        _grpc("unknown-method", Grpc("Nothing")),
        _grpc("unknown-service", Grpc("ModelInfer", service="inference.Nothing")),
        *(
            _grpc(
                f"health-{name or 'all'}",
                Grpc(
                    "Check",
                    b"" if not name else b"\n" + bytes([len(name)]) + name.encode(),
                    service="grpc.health.v1.Health",
                ),
            )
            for name in ("", "inference.GRPCInferenceService", "nobody")
        ),
        _grpc("health-list", Grpc("List", b"", service="grpc.health.v1.Health")),
    ]


def _seen_by_the_model() -> list[Case]:
    tensors = [T("IN", "INT32", [2], [1, 2])]
    sets: dict[str, dict[str, Any]] = {
        "nothing": {},
        "id": {"id": "id 1"},
        "parameters": {"parameters": {"text": "caf\u00e9", "int": -5, "true": True, "empty": "", "large": 2**40}},
        "double": {"parameters": {"d": 0.1, "whole": 2.0}},
        "uint64": {"parameters": {"u": 2**63}},
        "sequence": {"parameters": {"sequence_id": 7, "sequence_start": True, "sequence_end": False}},
        "sequence-text": {"parameters": {"sequence_id": "seven", "sequence_end": True}},
        "sequence-zero": {"parameters": {"sequence_id": 0, "sequence_start": True}},
        "timeout": {"parameters": {"timeout": 123456}},
        "priority": {"parameters": {"priority": 3}},
        "binary-data-output": {"parameters": {"binary_data_output": False}},
    }
    cases: list[Case] = []
    for id, more in sets.items():
        cases.append(_http(f"seen-{id}", http_json("look", tensors, **more), models=("look",)))
        if id != "binary-data-output":
            cases.append(_grpc(f"seen-{id}", grpc_raw("look", tensors, **more), models=("look",)))
    return [
        *cases,
        _http("seen-outputs", http_json("look", tensors, [Out("OUT")]), models=("look",)),
        _grpc("seen-outputs", grpc_raw("look", tensors, [Out("OUT")]), models=("look",)),
        _http("seen-inputs", http_json("look", [T("MORE", "FP32", [1], [1.0]), *tensors]), models=("look",)),
        _http("seen-empty-input", http_json("look", [T("IN", "INT32", [0], [])]), models=("look",)),
        _http("seen-headers", http_json("look", tensors, headers={"X-Forward-Me": "1"}), models=("look",)),
        _http("arguments", http_json("arguments", [T("IN", "INT32", [1], [1])]), models=("arguments",)),
    ]


CASES_HTTP = flat(_routes(), _json_bodies(), _binary_bodies(), _raw_bodies(), _encodings(), _framing())
CASES_GRPC = flat(_messages())
CASES_SEEN = flat(_seen_by_the_model())
