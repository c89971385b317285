"""A joined node as a process: joins, follows, survives kill -9 and an absent control plane."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from serving_node.contract.control import Drain, Unit
from serving_node.contract.digests import manifest_digest
from serving_node.contract.states import UnitState
from tests.ports import held_port
from tests.serving_node.backends.python.wheels import make_numpy, make_wheel

from .processes import ControlPlane, NodeProcess, desired, doubling_model, eventually

pytestmark = pytest.mark.integration
Launch = Callable[..., NodeProcess]


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    made = ControlPlane().start()
    yield made
    made.stop()


@pytest.fixture
def launch(tmp_path: Path, plane: ControlPlane) -> Iterator[Launch]:
    token = tmp_path / "token"
    token.write_text("join-me\n")
    made: list[NodeProcess] = []

    def start(*more: str, join: bool = True, name: str = "node.log") -> NodeProcess:
        arguments = [f"--state-dir={tmp_path / 'state'}", "--exit-timeout-secs=10"]
        if join:
            arguments += [f"--join={plane.url}", f"--join-token-file={token}", "--node-name=n1", "--label=zone=a"]
        made.append(NodeProcess(tmp_path / name, *arguments, *more).start())
        return made[-1]

    yield start
    for node in made:
        node.end(signal.SIGKILL)


def infer(node: NodeProcess, version: str = "") -> float:
    """Return the factor by which the model multiplies."""
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}")
    tensor = triton_grpc.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    try:
        return float(client.infer("m", [tensor], model_version=version).as_numpy("y")[0, 0])
    finally:
        client.close()


def test_node_joins_serves_and_is_read_only_for_others(launch: Launch, plane: ControlPlane, tmp_path: Path) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    joined = plane.joins[0]
    assert (joined["token"], joined["name"], joined["contract_version"]) == ("join-me", "n1", 1)
    assert joined["endpoints"]["admin"] == f"http://127.0.0.1:{node.admin}"
    assert joined["inventory"]["labels"] == {"zone": "a"}
    assert joined["inventory"]["cpu_count"] >= 1
    assert "onnxruntime" in joined["inventory"]["backends"]
    identity = tmp_path / "state" / "identity.json"
    eventually(lambda: json.loads(identity.read_text())["node"] == "node-7", "the answer is on disk")
    assert identity.stat().st_mode & 0o777 == 0o600

    one, two = plane.unit(1, doubling_model(2.0)), plane.unit(2, doubling_model(3.0))
    plane.put(node, desired(1, one))
    observed = plane.until_applied(node, 1)
    assert observed.models[0].state is UnitState.READY
    assert infer(node) == 2.0
    plane.put(node, desired(2, one, two, weights=(0, 100)))
    plane.until_applied(node, 2)
    assert infer(node) == 3.0
    assert infer(node, "1") == 2.0, "a request with a version goes there"

    client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
    for change in (lambda: client.unload_model("m"), lambda: client.register_system_shared_memory("r", "/k", 4)):
        with pytest.raises(InferenceServerException, match="managed by a control plane") as caught:
            change()
        assert caught.value.status() == "503"
    client.close()
    assert joined["admin_secret"] not in node.said()
    assert node.end() == 0


def successes(node: NodeProcess) -> float:
    text = httpx2.get(f"http://127.0.0.1:{node.metrics}/metrics", verify=False, trust_env=False, timeout=30).text
    lines = [line for line in text.splitlines() if line.startswith("nv_inference_request_success{")]
    assert len(lines) == 1, "one series for each version"
    return float(lines[0].split()[-1])


def test_node_counters_go_on_when_another_config_of_a_version_takes_over(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    slow = plane.unit(1, doubling_model())
    quick = replace(plane.unit(1, doubling_model(), max_batch_size=2), unit="u1-quick")
    counts = []
    for generation, units, weights in ((1, (slow,), (100,)), (2, (slow, quick), (50, 50)), (3, (quick,), (100,))):
        plane.put(node, desired(generation, *units, weights=weights))
        plane.until_applied(node, generation)
        for _ in range(10):
            infer(node)
        counts.append(successes(node))
    assert counts == [10, 20, 30]


def test_node_failed_replacement_keeps_serving(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    plane.put(node, desired(1, plane.unit(1, doubling_model())))
    plane.until_applied(node, 1)
    plane.put(node, desired(2, plane.unit(2, b"this is no ONNX file")))
    observed = plane.until_applied(node, 2)
    failed = next(model for model in observed.models if model.unit == "u2")
    assert failed.state is UnitState.FAILED
    assert failed.reason is not None
    assert failed.reason.text
    assert infer(node) == 2.0


def test_node_killed_while_fetching_resumes(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    content = doubling_model()
    plane.hold_after = len(content) // 2
    plane.put(node, desired(1, plane.unit(1, content)))
    assert plane.holding.wait(20)
    part = eventually(
        lambda: [p for p in Path(node.arguments[0].partition("=")[2]).glob("blobs/*/*.part") if p.stat().st_size],
        "half of the blob is on disk",
    )[0]
    node.end(signal.SIGKILL)
    half = part.stat().st_size
    assert 0 < half < len(content)
    plane.hold_after = 0
    plane.released.set()
    node.start()
    eventually(lambda: plane.hellos, "the node says hello")
    assert plane.hellos[0][0] == "Bearer t0ken"
    plane.until_applied(node, 1)
    assert plane.ranges[-1] == f"bytes={half}-"
    assert infer(node) == 2.0
    assert len(plane.joins) == 1


def test_node_restarts_and_serves_without_the_control_plane(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    plane.put(node, desired(1, plane.unit(1, doubling_model())))
    plane.until_applied(node, 1)
    node.end(signal.SIGKILL)
    plane.stop()
    again = launch(join=False, name="again.log").until_ready()
    assert infer(again) == 2.0
    assert again.end() == 0
    plane.start()


def test_node_drain_turns_readiness_off(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    state = desired(1, plane.unit(1, doubling_model()))
    plane.put(node, state)
    plane.until_applied(node, 1)
    node.until_ready()
    plane.put(node, replace(state, generation=2, drain=Drain(5.0)))
    observed = plane.until_applied(node, 2)
    assert observed.draining
    assert not node.answers()
    with pytest.raises(InferenceServerException) as caught:
        infer(node)
    assert caught.value.status() == "StatusCode.UNAVAILABLE"


def test_node_refused_by_the_control_plane_says_so_and_ends(launch: Launch, plane: ControlPlane) -> None:
    plane.refuse_join = 403
    node = launch()
    assert node.wait() == 1
    assert "error: the control plane refused to let this node join: 403 the join token has expired" in node.said()
    assert "join-me" not in node.said()


def test_node_waits_for_a_control_plane_that_comes_later(launch: Launch, plane: ControlPlane) -> None:
    port = held_port()
    node = launch(f"--join=http://127.0.0.1:{port}")
    eventually(lambda: "membership.waiting" in node.said(), "the node has tried")
    assert node.answers("/v2/health/live")
    late = ControlPlane().start(port)
    try:
        eventually(lambda: late.joins, "the node joins")
    finally:
        late.stop()


def test_node_state_folder_is_held_by_one(launch: Launch, plane: ControlPlane) -> None:
    first = launch()
    eventually(lambda: plane.joins, "the node joins")
    second = launch(name="second.log")
    assert second.wait() == 1
    assert "another node runs in the state folder" in second.said()
    assert first.answers("/v2/health/live")


def test_admin_port_needs_the_secret(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    answer = httpx2.get(f"http://127.0.0.1:{node.admin}/v1/observed", verify=False, trust_env=False, timeout=30)
    assert answer.status_code == 401


def test_admin_port_speaks_tls_when_it_is_not_loopback(launch: Launch, plane: ControlPlane, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=n1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:n1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)
    flags = [f"--admin-tls-cert={certificate}", f"--admin-tls-key={key}", "--advertise-host=n1"]
    node = launch("--admin-address=0.0.0.0", *flags)
    eventually(lambda: plane.joins, "the node joins")
    assert plane.joins[0]["endpoints"]["admin"] == f"https://n1:{node.admin}"
    headers = {"Authorization": f"Bearer {plane.joins[0]['admin_secret']}"}
    trusted = ssl.create_default_context(cafile=certificate)
    url = f"https://127.0.0.1:{node.admin}/v1/healthz"
    assert httpx2.get(url, headers=headers, verify=trusted, trust_env=False, timeout=30).json() == {
        "live": True,
        "ready": True,
    }


def test_node_runs_code_only_where_the_desired_state_permits_it(launch: Launch, plane: ControlPlane) -> None:
    node = launch()
    eventually(lambda: plane.joins, "the node joins")
    source = b"class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
    tensors = (
        [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
        [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
    )
    code = plane.unit(1, source, path="model.py", backend="python", input=tensors[0], output=tensors[1])
    plane.put(node, desired(1, code))
    (refused,) = plane.until_applied(node, 1).models
    assert refused.state is UnitState.FAILED and refused.reason is not None
    assert (refused.reason.code, refused.reason.text) == (
        "code_not_permitted",
        "model 'm' has code that is not permitted to run on this node: model.py (Python source)",
    )
    plane.put(node, desired(2, replace(code, code_permitted=True)))
    (served,) = plane.until_applied(node, 2).models
    assert served.state is UnitState.READY, served.reason


def test_node_that_allows_no_code_is_not_overruled(launch: Launch, plane: ControlPlane) -> None:
    node = launch("--allow-model-code=false")
    eventually(lambda: plane.joins, "the node joins")
    code = plane.unit(1, b"", path="model.pt", backend="pytorch")
    plane.put(node, desired(1, replace(code, code_permitted=True)))
    (refused,) = plane.until_applied(node, 1).models
    assert refused.reason is not None and refused.reason.code == "code_not_permitted"


def test_node_builds_the_environment_of_a_unit_and_says_how(
    launch: Launch, plane: ControlPlane, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    lines = [make_numpy(wheels), make_wheel(wheels, "demo", "1.0", {"demo.py": "FACTOR = 3.0\n"})]
    node = launch(f"--backend-config=python,package-index={wheels}")
    eventually(lambda: plane.joins, "the node joins")
    source = b"""
import demo
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        outputs = [pb_utils.Tensor("y", request.inputs()[0].as_numpy() * demo.FACTOR) for request in requests]
        return [pb_utils.InferenceResponse([output]) for output in outputs]
"""
    tensors = [{"name": name, "data_type": "TYPE_FP32", "dims": [1, 4]} for name in "xy"]
    code = plane.unit(1, source, path="model.py", backend="python", input=tensors[:1], output=tensors[1:])

    def with_requirements(text: str) -> Unit:
        (listed,) = plane.unit(1, text.encode(), path="requirements.txt").files
        files = (*code.files, listed)
        return replace(code, files=files, manifest_digest=manifest_digest(files), code_permitted=True)

    plane.put(node, desired(1, with_requirements("\n".join([*lines, lines[1].replace("demo==1.0", "demo_kit==1.0")]))))
    (failed,) = plane.until_applied(node, 1).models
    assert failed.state is UnitState.FAILED and failed.reason is not None
    assert failed.reason.text.startswith("the environment of model 'm' cannot be built: Could not find a version")
    assert "ERROR: No matching distribution found for demo_kit==1.0" in failed.build_log
    plane.put(node, desired(2, replace(with_requirements("\n".join(lines)), unit="u2")))
    (served,) = plane.until_applied(node, 2).models
    assert served.state is UnitState.READY, served.reason
    assert "Successfully installed demo-1.0" in served.build_log and infer(node) == 3.0
    assert len(list((tmp_path / "state" / "environments").glob("*/complete"))) == 1
