"""System and CUDA shared memory: registering, looking, inferring out of and into regions, and everything wrong."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from tests.differential.cases.infer import PLAIN
from tests.differential.steps import Case, Grpc, Http, Region, Step
from tests.differential.tensors import Out, T, flat, grpc_raw, http_json

_KEY = "flotilla_differential"
_ROOT = "/v2/systemsharedmemory"
_DATA = PLAIN[0].bytes() + PLAIN[1].bytes()
# the region of a request that failed stays in use for a moment
_GONE = Http("POST", f"{_ROOT}/unregister", eventually=True)


def _register(name: str = "r", body: Any = None, **fields: Any) -> Http:
    document = {"key": f"/{_KEY}", "offset": 0, "byte_size": 64, **fields}
    content = body if isinstance(body, bytes) else json.dumps(document).encode()
    return Http("POST", f"{_ROOT}/region/{name}/register", content)


def _register_grpc(name: str = "r", key: str = f"/{_KEY}", offset: int = 0, byte_size: int = 64) -> Grpc:
    request = pb.SystemSharedMemoryRegisterRequest(name=name, key=key, offset=offset, byte_size=byte_size)
    return Grpc("SystemSharedMemoryRegister", request)


def _status(name: str = "") -> Http:
    return Http("GET", f"{_ROOT}/region/{name}/status" if name else f"{_ROOT}/status")


def _status_grpc(name: str = "") -> Grpc:
    return Grpc("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name=name))


def _unregister(name: str) -> Http:
    return Http("POST", f"{_ROOT}/region/{name}/unregister")


def _unregister_grpc(name: str = "") -> Grpc:
    return Grpc("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name=name))


def _case(id: str, *steps: Step, models: tuple[str, ...] = (), **more: Any) -> Case:
    return Case(f"shm-{id}", (Region(_KEY, 4096, _DATA), *steps, _GONE), models, **more)


def _place(region: str = "r", size: Any = 16, offset: Any = None) -> dict[str, Any]:
    place = {"shared_memory_region": region, "shared_memory_byte_size": size}
    return place if offset is None else {**place, "shared_memory_offset": offset}


def _inputs(first: dict[str, Any], second: dict[str, Any] | None = None) -> list[T]:
    placed = [T("INPUT0", "INT32", [4], parameters=first)]
    return [*placed, PLAIN[1] if second is None else T("INPUT1", "INT32", [4], parameters=second)]


def _both(id: str, *steps: Step, inputs: list[T], outputs: list[Out] | None = None, look: int = 0) -> list[Case]:
    seen: tuple[Step, ...] = (Region(_KEY, look),) if look else ()
    return [
        _case(f"{id}-{name}", *steps, make("plain", inputs, outputs), *seen, models=("plain",))
        for name, make in (("http", http_json), ("grpc", grpc_raw))
    ]


def _registering() -> list[Case]:
    return [
        _case("register", _register(), _status(), _status("r"), _status_grpc(), _unregister("r"), _status()),
        _case("register-grpc", _register_grpc(), _status_grpc("r"), _unregister_grpc("r"), _status_grpc()),
        _case("register-offset", _register(offset=64, byte_size=128), _status()),
        _case("register-two", _register("r"), _register("q"), _status(), _unregister_grpc(), _status()),
        _case("register-twice", _register(), _register(), _register_grpc()),
        _case("register-twice-other", _register(), _register(byte_size=32), _status()),
        _case("register-again", _register(), _unregister("r"), _register(), _status()),
        _case("register-no-slash", _register(key=_KEY), _status()),
        *(
            _case(f"register-{id}", _register(key=key), _register_grpc(key=key))
            for id, key in (
                ("absent", "/flotilla_no_such_object"),
                ("empty-key", ""),
                ("slashes", "///"),
                ("parent", "/../etc/passwd"),
                ("reserved", "/triton_python_backend_shm_region_1"),
                ("reserved-slashes", "//triton_python_backend_shm_region_1"),
                ("long-key", "/" + "x" * 300),
            )
        ),
        *(
            _case(f"register-bounds-{id}", _register(offset=o, byte_size=s), _register_grpc("g", offset=o, byte_size=s))
            for id, o, s in (
                ("size", 0, 4097),
                ("offset", 4096, 1),
                ("end", 4000, 97),
                ("exact", 4000, 96),
                ("zero", 0, 0),
                ("huge", 0, 2**62),
                ("overflow", 2**63, 2**63),
                ("wrap", 2**64 - 1, 2),
            )
        ),
        *(
            _case(f"register-body-{id}", _register(body=body))
            for id, body in (
                ("empty", b""),
                ("not-json", b"hello"),
                ("array", b"[]"),
                ("empty-object", b"{}"),
                ("no-size", b'{"key": "/flotilla_differential"}'),
                ("key-number", b'{"key": 1, "byte_size": 64}'),
                ("size-text", b'{"key": "/flotilla_differential", "byte_size": "64"}'),
                ("size-negative", b'{"key": "/flotilla_differential", "byte_size": -1}'),
                ("offset-negative", b'{"key": "/flotilla_differential", "byte_size": 64, "offset": -1}'),
                ("no-offset", b'{"key": "/flotilla_differential", "byte_size": 64}'),
            )
        ),
        _case("register-empty-name-grpc", _register_grpc(name="")),
        _case("status-unknown", _status("nobody"), _status_grpc("nobody")),
        _case("unregister-unknown", _unregister("nobody"), _unregister_grpc("nobody")),
        _case("unregister-all-of-none", _GONE, _unregister_grpc()),
        _case("status-none", _status(), _status_grpc()),
    ]


def _inferring() -> list[Case]:
    whole = _register(byte_size=4096)
    outs = [Out("OUTPUT0", _place(offset=1024)), Out("OUTPUT1", _place(offset=1040))]
    return flat(  # type: ignore[return-value]
        _both("in", whole, inputs=_inputs(_place())),
        _both("in-both", whole, inputs=_inputs(_place(), _place(offset=16))),
        _both("in-and-out", whole, inputs=_inputs(_place(), _place(offset=16)), outputs=outs, look=1056),
        _both("out", whole, inputs=PLAIN, outputs=[Out("OUTPUT0", _place(offset=32))], look=64),
        _both("out-larger", whole, inputs=PLAIN, outputs=[Out("OUTPUT0", _place(size=100, offset=32))], look=64),
        _both("out-small", whole, inputs=PLAIN, outputs=[Out("OUTPUT0", _place(size=8))]),
        _both("out-beyond", whole, inputs=PLAIN, outputs=[Out("OUTPUT0", _place(size=16, offset=4090))]),
        _both("out-unknown", inputs=PLAIN, outputs=[Out("OUTPUT0", _place("nobody"))]),
        _both("out-and-classes", whole, inputs=PLAIN, outputs=[Out("OUTPUT0", {**_place(), "classification": 2})]),
        _both("in-unknown", inputs=_inputs(_place("nobody"))),
        _both("in-after-unregister", whole, _unregister("r"), inputs=_inputs(_place())),
        _both("in-small", whole, inputs=_inputs(_place(size=12))),
        _both("in-large", whole, inputs=_inputs(_place(size=20))),
        _both("in-zero", whole, inputs=_inputs(_place(size=0))),
        _both("in-offset-beyond", whole, inputs=_inputs(_place(offset=4096))),
        _both("in-end-beyond", whole, inputs=_inputs(_place(offset=4090))),
        _both("in-overflow", whole, inputs=_inputs(_place(size=16, offset=2**63 - 8))),
        _both("in-negative-offset", whole, inputs=_inputs(_place(offset=-16))),
        _both("in-negative-size", whole, inputs=_inputs(_place(size=-16))),
        _both("in-text-size", whole, inputs=_inputs(_place(size="16"))),
        _both("in-text-offset", whole, inputs=_inputs(_place(offset="0"))),
        _both("in-no-size", whole, inputs=_inputs({"shared_memory_region": "r"})),
        _both("in-region-number", whole, inputs=_inputs({"shared_memory_region": 1, "shared_memory_byte_size": 16})),
        _both("in-of-offset-region", _register(offset=16, byte_size=64), inputs=_inputs(_place())),
        _both("in-beyond-registered", _register(byte_size=8), inputs=_inputs(_place())),
        _case(
            "in-and-data",
            whole,
            http_json("plain", [T("INPUT0", "INT32", [4], [1, 2, 3, 4]), PLAIN[1]]),
            models=("plain",),
        ),
    )


def _cuda() -> list[Case]:
    root = "/v2/cudasharedmemory"
    body = json.dumps({"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64}).encode()
    request = pb.CudaSharedMemoryRegisterRequest(name="c", raw_handle=b"\0" * 64, device_id=0, byte_size=64)
    return [
        Case(
            "cuda-register",
            (Http("POST", f"{root}/region/c/register", body), Grpc("CudaSharedMemoryRegister", request)),
        ),
        Case(
            "cuda-status",
            (
                Http("GET", f"{root}/status"),
                Http("GET", f"{root}/region/c/status"),
                Grpc("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
                Grpc("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name="c")),
            ),
        ),
        Case(
            "cuda-unregister",
            (
                Http("POST", f"{root}/unregister"),
                Http("POST", f"{root}/region/c/unregister"),
                Grpc("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name="c")),
            ),
        ),
    ]


CASES = flat(_registering(), _inferring(), _cuda())
