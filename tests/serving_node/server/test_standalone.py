"""``python -m serving_node --model-repository DIR`` against the stock Triton clients."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from .processes import NodeProcess, doubling_model, eventually

pytestmark = pytest.mark.integration
Launch = Callable[..., NodeProcess]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "doubling" / "1").mkdir(parents=True)
    (folder / "doubling" / "1" / "model.onnx").write_bytes(doubling_model())
    return folder


@pytest.fixture
def launch(tmp_path: Path, repository: Path) -> Iterator[Launch]:
    made: list[NodeProcess] = []

    def start(*more: str) -> NodeProcess:
        arguments = [f"--model-repository={repository}", "--exit-timeout-secs=10", *more]
        made.append(NodeProcess(tmp_path / f"node{len(made)}.log", *arguments).start())
        return made[-1]

    yield start
    for node in made:
        node.end(signal.SIGKILL)


def test_node_answers_tritonclient_over_http_and_grpc_to_the_bit(launch: Launch, repository: Path) -> None:
    node = launch().until_ready()
    data = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(repository / "doubling" / "1" / "model.onnx")
    [expected] = session.run(None, {"x": data})
    for module, port in ((triton_http, node.http), (triton_grpc, node.grpc)):
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("doubling")
        tensor = module.InferInput("x", list(data.shape), "FP32")
        tensor.set_data_from_numpy(data)
        result = client.infer("doubling", [tensor])
        assert result.as_numpy("y").tobytes() == expected.tobytes()
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'nothing' is not found"):
            client.infer("nothing", [tensor])
        client.close()
    assert (
        httpx2.get(f"http://127.0.0.1:{node.metrics}/metrics", verify=False, trust_env=False, timeout=30).status_code
        == 200
    )
    assert "node.started" in node.said()
    assert node.end() == 0


def test_node_explicit_mode_loads_and_unloads(launch: Launch) -> None:
    node = launch("--model-control-mode=explicit").until_ready()
    client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
    assert not client.is_model_ready("doubling")
    assert client.get_model_repository_index() == [{"name": "doubling"}]
    client.load_model("doubling")
    assert client.is_model_ready("doubling")
    assert client.get_model_config("doubling")["max_batch_size"] == 4, "completed from the file"
    client.unload_model("doubling")
    assert not client.is_model_ready("doubling")
    client.close()


def add_slow_identity(repository: Path, delay_ms: int, *more: str) -> None:
    folder = repository / "slow"
    (folder / "1").mkdir(parents=True)
    tensor = 'name: "{}" data_type: TYPE_FP32 dims: [4]'
    lines = [
        'backend: "identity"',
        "max_batch_size: 8",
        f"input {{ {tensor.format('x')} }}",
        f"output {{ {tensor.format('y')} }}",
        f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}',
        *more,
    ]
    (folder / "config.pbtxt").write_text("\n".join(lines))


def infer_slow(node: NodeProcess, value: float) -> float:
    with contextlib.closing(triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}")) as client:
        tensor = triton_grpc.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.full((1, 4), value, np.float32))
        return float(client.infer("slow", [tensor]).as_numpy("y")[0, 0])


def test_node_batches_concurrent_requests(launch: Launch, repository: Path) -> None:
    add_slow_identity(repository, 30, "dynamic_batching { max_queue_delay_microseconds: 20000 }")
    node = launch().until_ready()
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda value: infer_slow(node, value), range(32)))
    assert answers == list(range(32)), "everybody gets his own answer"
    client = triton_http.InferenceServerClient(f"127.0.0.1:{node.http}")
    [statistics] = client.get_inference_statistics("slow")["model_stats"]
    client.close()
    assert int(statistics["inference_count"]) == 32
    assert int(statistics["execution_count"]) < 32
    assert max(int(batch["batch_size"]) for batch in statistics["batch_stats"]) > 1


def pending(node: NodeProcess) -> bool:
    """Tell whether a request waits behind one that runs."""
    text = httpx2.get(f"http://127.0.0.1:{node.metrics}/metrics", verify=False, trust_env=False, timeout=30).text
    return 'nv_inference_pending_request_count{model="slow",version="1"} 1\n' in text


def test_node_stopped_answers_what_runs_and_waits(launch: Launch, repository: Path) -> None:
    add_slow_identity(repository, 1000)
    node = launch().until_ready()
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(infer_slow, node, value) for value in (5.0, 6.0)]
        eventually(lambda: pending(node), "one request runs and one waits")
        assert node.end() == 0
        assert [answer.result(20) for answer in answers] == [5.0, 6.0]


def test_node_that_stops_serves_open_connections_and_takes_no_new_ones(launch: Launch, repository: Path) -> None:
    add_slow_identity(repository, 1500)
    node = launch().until_ready()
    open_connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=20)

    def ask(path: str) -> int:
        open_connection.request("GET", path)
        answer = open_connection.getresponse()
        answer.read()
        return answer.status

    assert ask("/v2/health/ready") == 200
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(infer_slow, node, value) for value in (5.0, 6.0)]
        eventually(lambda: pending(node), "one request runs and one waits")
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        eventually(lambda: refuses(node.http) and refuses(node.grpc), "no new connections")
        assert ask("/v2/health/ready") == 400, "who can choose should go elsewhere"
        assert ask("/v2/health/live") == 200
        assert ask("/v2/models/slow") == 200
        assert [answer.result(20) for answer in answers] == [5.0, 6.0]
    open_connection.close()
    assert node.wait() == 0
    said = node.said()
    assert "Waiting for in-flight requests to complete." in said
    assert "Model 'slow' (version 1) has 2 in-flight inferences" in said


def refuses(port: int) -> bool:
    """Tell whether a new connection is refused."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_node_stopped_with_too_much_to_do_ends_in_time(launch: Launch, repository: Path) -> None:
    add_slow_identity(repository, 6000)  # the start takes as long: a warm-up request runs first
    node = launch("--exit-timeout-secs=1").until_ready()
    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(infer_slow, node, value) for value in (5.0, 6.0)]
        eventually(lambda: pending(node), "one request runs and one waits")
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        assert node.end(signal.SIGINT) == 1
        for answer in answers:
            with pytest.raises(InferenceServerException):
                answer.result(20)


def test_node_verbose_log_shows_no_headers(launch: Launch) -> None:
    node = launch("--log-verbose=1").until_ready()
    with contextlib.closing(triton_grpc.InferenceServerClient(f"127.0.0.1:{node.grpc}")) as client:
        assert client.is_server_live(headers={"x-secret": "do-not-log-me"})
    node.end()
    assert "do-not-log-me" not in node.said()


def test_node_model_that_fails_ends_the_start(launch: Launch, repository: Path) -> None:
    (repository / "doubling" / "1" / "model.onnx").write_bytes(b"broken")
    node = launch()
    assert node.wait() == 1
    assert "error: load failed for model 'doubling': version 1 is at UNAVAILABLE state: " in node.said()
    lenient = launch("--exit-on-error=false", "--strict-readiness=false").until_ready()
    assert lenient.end() == 0


def test_node_occupied_port_is_one_sentence(launch: Launch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        node = launch(f"--metrics-port={port}")
        assert node.wait() == 1
    assert f"error: the metrics port {port} on 127.0.0.1 is taken by another process" in node.said()


def test_node_that_is_stopped_while_it_starts_ends(launch: Launch) -> None:
    node = launch()
    assert node.end(signal.SIGTERM) in (0, -signal.SIGTERM)
