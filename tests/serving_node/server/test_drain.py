"""The end of a node: one countdown for all models, streams that are finished first, and who does not want to wait."""

from __future__ import annotations

import http.client
import json
import signal
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving_node.server.processes import NodeProcess, eventually

pytestmark = pytest.mark.integration

SLEEPS = """
    def initialize(self, args):
        self.began = os.path.join(args["model_repository"], "began")

    def execute(self, requests):
        open(self.began, "w").close()
        time.sleep(60)
"""
STREAMS = """
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.stream, args=(request.get_response_sender(),)).start()

    def stream(self, sender):
        for number in range(4):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]))
            while number == 0 and not os.path.exists(self.go):
                time.sleep(0.01)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def initialize(self, args):
        self.go = os.path.join(args["model_repository"], "go")
"""
ECHOES = """
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one.inputs()[0].as_numpy())]) for one in requests]
"""
ASKS = """
    def initialize(self, args):
        self.folder = args["model_repository"]

    def execute(self, requests):
        open(self.folder + "/began", "w").close()
        while not os.path.exists(self.folder + "/go"):
            time.sleep(0.01)
        inner = pb_utils.InferenceRequest(
            model_name="echoes", inputs=requests[0].inputs(), requested_output_names=["OUT"]
        )
        return [inner.exec()]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "models"


def add(repository: Path, name: str, body: str, *more: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    code = "import os, threading, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n\n"
    methods = textwrap.indent(textwrap.dedent(body), "    ")
    (version / "model.py").write_text(f"{code}class TritonPythonModel:\n{methods}")
    lines = [
        'backend: "python"',
        'input { name: "IN" data_type: TYPE_INT32 dims: [1] }',
        'output { name: "OUT" data_type: TYPE_INT32 dims: [1] }',
        *more,
    ]
    (repository / name / "config.pbtxt").write_text("\n".join(lines))


Launch = Callable[..., NodeProcess]


@pytest.fixture
def launch(tmp_path: Path, repository: Path) -> Iterator[Launch]:
    nodes: list[NodeProcess] = []

    def start(*more: str) -> NodeProcess:
        nodes.append(NodeProcess(tmp_path / "log", f"--model-repository={repository}", *more))
        return nodes[-1].start().until_ready()

    yield start
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.process.kill()
            node.process.wait(30)


def ask(node: NodeProcess, model: str) -> int:
    """Return the status of an answer, 0 when the connection is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)
    tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [1]}
    try:
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def signalled(node: NodeProcess, number: int = signal.SIGTERM) -> None:
    assert node.process is not None
    node.process.send_signal(number)


def all_run(repository: Path, *names: str) -> bool:
    """Tell whether each of these models has begun a request."""
    return all((repository / name / "began").exists() for name in names)


def test_all_models_share_one_countdown(launch: Launch, repository: Path) -> None:
    names = ("one", "two", "three")
    for name in names:
        add(repository, name, SLEEPS)
    node = launch("--exit-timeout-secs=2")
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(ask, node, name) for name in names]
        eventually(lambda: all_run(repository, *names), "three requests run")
        signalled(node)
        assert node.wait() == 1
        assert [answer.result(20) for answer in answers] != [200, 200, 200]
    said = node.said()
    assert "Timeout 2: Found 3 model versions that have in-flight inferences" in said
    assert "Timeout 1: Found 3 model versions that have in-flight inferences" in said
    for name in names:
        assert f"Model '{name}' (version 1) has 1 in-flight inferences" in said
    assert "Exit timeout expired. Exiting immediately." in said


def test_a_stream_is_finished_first(launch: Launch, repository: Path) -> None:
    add(repository, "streams", STREAMS, "model_transaction_policy { decoupled: true }")
    node = launch("--exit-timeout-secs=40")
    connection = http.client.HTTPConnection("127.0.0.1", node.http, timeout=60)
    connection.request("POST", "/v2/models/streams/generate_stream", json.dumps({"IN": 1}))
    answer = connection.getresponse()
    first = answer.readline()
    signalled(node)
    eventually(lambda: "Model 'streams' (version 1) has 1 in-flight inferences" in node.said(), "the countdown")
    (repository / "streams" / "go").touch()
    lines = [first, *answer.read().splitlines()]
    values = [json.loads(line.removeprefix(b"data: "))["OUT"] for line in lines if line.startswith(b"data: ")]
    assert values == [0, 1, 2, 3]
    connection.close()
    assert node.wait() == 0


def test_requests_that_run_may_ask_other_models_while_the_node_stops(launch: Launch, repository: Path) -> None:
    add(repository, "asks", ASKS)
    add(repository, "echoes", ECHOES)
    node = launch("--exit-timeout-secs=40")
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(ask, node, "asks")
        eventually(lambda: all_run(repository, "asks"), "a request runs")
        signalled(node)
        eventually(lambda: "Model 'asks' (version 1) has 1 in-flight inferences" in node.said(), "the countdown")
        (repository / "asks" / "go").touch()
        assert answer.result(20) == 200
    assert node.wait() == 0


def test_a_second_signal_ends_the_node_at_once(launch: Launch, repository: Path) -> None:
    add(repository, "one", SLEEPS)
    node = launch("--exit-timeout-secs=300")
    with ThreadPoolExecutor(1) as threads:
        threads.submit(ask, node, "one")
        eventually(lambda: all_run(repository, "one"), "a request runs")
        signalled(node)
        eventually(lambda: "Waiting for in-flight requests to complete." in node.said(), "the countdown")

        def ended() -> bool:
            assert node.process is not None
            if node.process.poll() is None:
                signalled(node, signal.SIGINT)
            return node.process.poll() is not None

        eventually(ended, "the end")
    assert node.wait() == 1
    assert "A second signal came. Exiting immediately." in node.said()
