"""Bad input against really running processes: each gets one clear sentence and leaves nothing half-made behind."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper

from flotilla.sdk import ApiError, Flotilla, OperationFailed
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("loop"), pytest.mark.timeout(600)]

UPLOADS = "/api/v1/uploads/"


@pytest.fixture(scope="module")
def token(flotilla: RunningFlotilla) -> str:
    done = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "demo_accounts"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return str(json.loads(done.stdout)["author"]["token"])


@pytest.fixture(scope="module")
def author(flotilla: RunningFlotilla, token: str) -> Iterator[Flotilla]:
    with Flotilla(flotilla.url, token) as client:
        yield client


def write_contradiction(path: Path) -> Path:
    """Write x[batch, 16] -> y[batch, 4] whose weights have seven rows: only the runtime notices."""
    weights = numpy_helper.from_array(np.zeros((7, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "contradiction",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def staged(flotilla: RunningFlotilla) -> list[str]:
    return sorted(path.name for path in (flotilla.data_dir / "staging").iterdir())


def test_a_model_that_does_not_load_never_replaces_the_one_that_serves(
    flotilla: RunningFlotilla, author: Flotilla, tmp_path: Path
) -> None:
    good = author.push("sturdy", {"model.onnx": write_mlp(tmp_path / "1" / "model.onnx", seed=1)})
    answer = author.deploy("sturdy", "development", [_live(good["number"])])
    author.wait({"id": answer["operation"]})
    author.wait_settled("sturdy", "development")
    bad = author.push("sturdy", {"model.onnx": write_contradiction(tmp_path / "2" / "model.onnx")})
    answer = author.deploy("sturdy", "development", [_live(bad["number"])])
    with pytest.raises(OperationFailed, match="matrix multiplication"):
        author.wait({"id": answer["operation"]})
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{flotilla.node_port}")
    tensor = tritonclient.http.InferInput("x", [1, 16], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 16), np.float32))
    served = client.infer("sturdy", [tensor]).get_response()
    assert served["model_version"] == str(good["number"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html>" * 50, "HTML page"),
        (b"\x08\x08:\xff\xff\x03", "truncated"),
        (b"no model at all, only words", "not an ONNX"),
    ],
)
def test_a_file_that_is_no_model_is_rejected_with_one_sentence(
    flotilla: RunningFlotilla, author: Flotilla, tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(OperationFailed, match=words):
        author.push("nonsense", {"model.onnx": path})
    assert staged(flotilla) == []


@pytest.mark.parametrize("path", ["../model.onnx", "/etc/passwd", "a//b", "a\\b", "a\0b", "x" * 501, "tab\tname", "."])
def test_a_file_name_with_a_path_in_it_is_refused_at_once(author: Flotilla, tmp_path: Path, path: str) -> None:
    file = write_mlp(tmp_path / "model.onnx", seed=1)
    with pytest.raises(ApiError) as refused:
        author.push("paths", {path: file})
    assert refused.value.status == 400


def test_an_upload_that_was_cut_goes_on_where_it_was(
    flotilla: RunningFlotilla, author: Flotilla, token: str, tmp_path: Path
) -> None:
    author.push("cut", {"model.onnx": write_mlp(tmp_path / "1" / "model.onnx", seed=1)})
    content = write_mlp(tmp_path / "2" / "model.onnx", seed=2).read_bytes()
    status, version = call(flotilla, token, "POST", "/api/v1/projects/default/models/cut/versions/", json_body={})
    assert status == 201
    words = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in _names(version["id"]))
    location = create(flotilla, token, {"Upload-Length": str(len(content)), "Upload-Metadata": words})
    kind = {"Content-Type": "application/offset+octet-stream"}
    first = {"Upload-Offset": "0", **kind}
    assert call(flotilla, token, "PATCH", location, body=content[:500], headers=first)[0] == 204
    cut(flotilla, token, location, content, begin=500, end=1000)
    incomplete, problem = call(flotilla, token, "POST", _version(version["id"]) + "submit")
    assert (incomplete, problem["code"]) == (400, "validation_failed")
    assert "model.onnx" in problem["detail"]

    def finish() -> bool:
        """Go on as a client does; the server may still be busy with what was cut."""
        offset = offset_of(flotilla, token, location)
        assert 500 <= offset <= 1000
        rest = {"Upload-Offset": str(offset), **kind}
        return call(flotilla, token, "PATCH", location, body=content[offset:], headers=rest)[0] == 204

    wait_until(finish, "the rest is taken")
    status, operation = call(flotilla, token, "POST", _version(version["id"]) + "submit")
    assert status == 202
    author.wait({"id": operation["id"]})
    assert call(flotilla, token, "GET", _version(version["id"]))[1]["state"] == "ready"


def _live(number: int) -> dict[str, Any]:
    return {"version": number, "config": 1, "role": "live", "weight": 100}


def _version(version_id: str) -> str:
    return f"/api/v1/projects/default/models/cut/versions/{version_id}/"


def _names(version_id: str) -> list[tuple[str, str]]:
    return [("version", version_id), ("path", "model.onnx")]


def _headers(token: str, more: dict[str, str] | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Tus-Resumable": "1.0.0", **(more or {})}


def call(
    flotilla: RunningFlotilla,
    token: str,
    method: str,
    path: str,
    *,
    json_body: Any = None,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Return status and document of one request."""
    words = _headers(token, headers)
    if json_body is not None:
        body, words["Content-Type"] = json.dumps(json_body).encode(), "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", flotilla.port, timeout=30)
    try:
        connection.request(method, path, body=body, headers=words)
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content else dict(answer.headers)
    finally:
        connection.close()


def create(flotilla: RunningFlotilla, token: str, headers: dict[str, str]) -> str:
    """Return the address of a new upload."""
    status, answer = call(flotilla, token, "POST", UPLOADS, headers=headers)
    assert status == 201
    return str({name.lower(): value for name, value in answer.items()}["location"])


def cut(flotilla: RunningFlotilla, token: str, location: str, content: bytes, *, begin: int, end: int) -> None:
    """Announce everything from ``begin`` on, send up to ``end`` and hang up."""
    connection = http.client.HTTPConnection("127.0.0.1", flotilla.port, timeout=30)
    connection.putrequest("PATCH", location)
    words = {"Upload-Offset": str(begin), "Content-Type": "application/offset+octet-stream"}
    for name, value in _headers(token, {**words, "Content-Length": str(len(content) - begin)}).items():
        connection.putheader(name, value)
    connection.endheaders(content[begin:end])
    connection.close()


def offset_of(flotilla: RunningFlotilla, token: str, location: str) -> int:
    status, answer = call(flotilla, token, "HEAD", location)
    assert status == 200
    return int({name.lower(): value for name, value in answer.items()}["upload-offset"])
