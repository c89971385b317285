"""The SDK against a local HTTP server that answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flotilla.sdk import ApiError, Flotilla, OperationFailed, direct_upload, upload
from flotilla.sdk.transport import Transport
from flotilla.sdk.upload import upload_file

VERSION = "projects/wren/models/finch/versions/v/"


@dataclass
class Console:
    """Answers from a list; keeps what it was asked."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def say(self, status: int, body: Any = None, **headers: str) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, content))


@pytest.fixture
def console() -> Iterator[Console]:
    state = Console()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((self.command, self.path, dict(self.headers), body))
            status, headers, content = state.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_HEAD = _answer

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join(30)


def test_problem_document_becomes_one_error(console: Console) -> None:
    console.say(
        422,
        {"code": "validation_failed", "detail": "Not so.", "errors": [{"field": "slug", "message": "Too long."}]},
    )
    with Flotilla(console.url, "flo_x") as client, pytest.raises(ApiError) as refusal:
        client.me()
    assert (refusal.value.status, refusal.value.code) == (422, "validation_failed")
    assert str(refusal.value) == "Not so.\n  slug: Too long."
    assert console.asked[0][2]["Authorization"] == "Bearer flo_x"


def test_reads_are_repeated_and_writes_are_not(console: Console) -> None:
    console.say(503)
    console.say(200, {"username": "alice"})
    with Flotilla(console.url, "t") as client:
        assert client.me() == {"username": "alice"}
        console.say(404, {"detail": "no"})
        console.say(503)
        with pytest.raises(ApiError) as refusal:
            client.ensure_model("m")
    assert refusal.value.status == 503
    assert [asked[0] for asked in console.asked] == ["GET", "GET", "GET", "POST"]


def test_nobody_there_is_said(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flotilla.sdk.transport._RETRY_PAUSES_SECONDS", ())
    with Flotilla("http://127.0.0.1:1", "t") as client, pytest.raises(ApiError, match="Cannot reach"):
        client.me()


def test_token_is_not_in_any_repr() -> None:
    from flotilla import settings

    assert "secret" not in repr(settings.client_settings(None, "secret", None))


def test_upload_goes_on_from_the_offset_that_the_server_has(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"0123456789")
    console.say(201, Location="/api/v1/uploads/7")
    console.say(503)
    console.say(200, Upload_Offset="4")
    console.say(204, Upload_Offset="10")
    seen: list[tuple[int, int]] = []
    upload_file(
        Transport(console.url, "t"),
        version=VERSION,
        version_id="v",
        path="model.onnx",
        file=file,
        progress=lambda sent, total: seen.append((sent, total)),
    )
    assert [(asked[0], asked[1]) for asked in console.asked] == [
        ("POST", "/api/v1/uploads/"),
        ("PATCH", "/api/v1/uploads/7"),
        ("HEAD", "/api/v1/uploads/7"),
        ("PATCH", "/api/v1/uploads/7"),
    ]
    assert console.asked[3][3] == b"456789"
    assert console.asked[3][2]["Upload-Offset"] == "4"
    assert seen[-1] == (10, 10)


def test_a_server_without_an_object_store_is_asked_for_parts_once(
    console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_upload, "_LEAST_BYTES", 1)
    monkeypatch.setattr(upload, "_FILES_AT_ONCE", 1)
    files = {name: tmp_path / name for name in ("a.bin", "b.bin")}
    console.say(200, {"sizes": []})
    console.say(409, {"code": "conflict", "detail": "By tus only."})
    for name, file in files.items():
        file.write_bytes(name.encode())
        console.say(201, Location=f"/api/v1/uploads/{name}")
        console.say(204, Upload_Offset="5")
    upload.upload_files(Transport(console.url, "t"), version=VERSION, version_id="v", files=files)
    assert [asked[1].removeprefix("/api/v1/") for asked in console.asked] == [
        f"{VERSION}files/known",
        f"{VERSION}uploads/",
        "uploads/",
        "uploads/a.bin",
        "uploads/",
        "uploads/b.bin",
    ]


def test_upload_that_is_refused_stops_at_once(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"0123456789")
    console.say(201, Location="/api/v1/uploads/7")
    console.say(507, {"code": "storage_failed", "detail": "The disk is full."})
    with pytest.raises(ApiError, match="The disk is full"):
        upload_file(Transport(console.url, "t"), version=VERSION, version_id="v", path="model.onnx", file=file)


def test_failed_operation_gives_its_sentence(console: Console) -> None:
    console.say(200, {"id": "o", "state": "running"})
    console.say(200, {"id": "o", "state": "failed", "error": {"code": "version_rejected", "message": "Truncated."}})
    with Flotilla(console.url, "t") as client, pytest.raises(OperationFailed, match="Truncated"):
        client.wait({"operation": "o"})


def test_pages_are_followed(console: Console) -> None:
    console.say(200, {"results": [{"slug": "a"}], "next": f"{console.url}/api/v1/projects/default/models/?cursor=x"})
    console.say(200, {"results": [{"slug": "b"}], "next": None})
    with Flotilla(console.url, "t") as client:
        assert [model["slug"] for model in client.models()] == ["a", "b"]
    assert console.asked[1][1].endswith("?cursor=x")


def test_a_conversion_report_goes_before_the_files(console: Console, tmp_path: Path) -> None:
    file = tmp_path / "half.onnx"
    file.write_bytes(b"half")
    console.say(200, {"slug": "finch"})
    console.say(201, {"id": "v1"})
    console.say(201, {"kind": "conversion"})
    console.say(200, {"sizes": []})
    console.say(201, Location="/api/v1/uploads/7")
    console.say(204, Upload_Offset="4")
    console.say(202, {"id": "op"})
    console.say(200, {"state": "succeeded", "progress_percent": 100, "message": ""})
    console.say(200, {"number": 2})
    with Flotilla(console.url, "t") as client:
        version = client.push("finch", {"model.onnx": file}, conversion={"steps": ["fp16"]})
    assert version == {"number": 2}
    command, path, _headers, body = console.asked[2]
    assert (command, path) == ("POST", "/api/v1/projects/default/models/finch/versions/v1/conversion")
    assert json.loads(body) == {"report": {"steps": ["fp16"]}}


def running(percent: int, message: str) -> dict[str, Any]:
    return {"id": "o", "state": "running", "progress_percent": percent, "message": message}


CELL = {
    "batch": 4,
    "instances": 1,
    "requests": 10,
    "rows_per_second": 40.0,
    "latency_p50_ms": 1.5,
    "latency_p99_ms": 2.5,
    "compute_ms": 1.0,
    "load_seconds": 0.2,
    "memory_bytes": 2**20,
    "error": "",
}


def answer_a_measurement(console: Console) -> None:
    console.say(202, {"id": "o"})
    console.say(200, running(5, "Loading"))
    console.say(200, running(5, "Loading"))
    console.say(200, {**running(100, "Batch 4"), "state": "succeeded", "result": {"measurement": "m1"}})
    failed = {**CELL, "instances": 2, "requests": 0, "error": "out of memory"}
    console.say(200, {"id": "m1", "cells": [CELL, failed]})


def test_a_measurement_is_followed_to_its_figures(console: Console) -> None:
    answer_a_measurement(console)
    told: list[tuple[int, str]] = []
    with Flotilla(console.url, "t") as client:
        found = client.measure("m", 3, "gpu-7", batch=[4], progress=lambda *now: told.append(now))
    assert found["id"] == "m1" and told == [(5, "Loading"), (100, "Batch 4")]
    assert console.asked[0][1] == "/api/v1/projects/default/models/m/versions/3/measurements/"
    assert json.loads(console.asked[0][3]) == {
        "node": "gpu-7",
        "config": None,
        "batch": [4],
        "instances": [1],
        "shapes": {},
    }


def test_bench_model_prints_a_table_or_json(console: Console) -> None:
    from click.testing import CliRunner

    from flotilla.cli import main

    arguments = ["bench-model", "m", "3", "--node", "gpu-7", "--batch", "4", "--instances", "1,2", "--url", console.url]
    arguments += ["--token", "t", "--seconds", "0.5", "--shape", "image=3,224,224"]
    answer_a_measurement(console)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "5 %  Loading" in done.stderr
    header, first, second = done.stdout.splitlines()
    assert header.split()[:3] == ["BATCH", "INSTANCES", "ROWS/S"]
    assert first.split() == ["4", "1", "40.0", "1.5", "2.5", "1.0", "0.2", "1.0"]
    assert second.split()[:3] == ["4", "2", "-"] and second.endswith("out of memory")
    sent = json.loads(console.asked[0][3])
    assert (sent["instances"], sent["seconds"], sent["shapes"]) == ([1, 2], 0.5, {"image": [3, 224, 224]})
    answer_a_measurement(console)
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert json.loads(done.stdout)["cells"][0] == CELL and done.stderr == ""


@pytest.mark.parametrize(("option", "text"), [("--batch=x", "no list"), ("--shape=x", "INPUT=SIZES")])
def test_bench_model_says_what_it_did_not_understand(console: Console, option: str, text: str) -> None:
    from click.testing import CliRunner

    from flotilla.cli import main

    done = CliRunner().invoke(main, ["bench-model", "m", "3", "-n", "n", option, "--url", console.url, "--token", "t"])
    assert done.exit_code == 2 and text in done.output and console.asked == []
