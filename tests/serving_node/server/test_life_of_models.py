"""Real nodes whose models change while clients ask: in place, by reloads, by polls, from an object store."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from .processes import NodeProcess, eventually

CONFIG = """
backend: "identity"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""
Launch = Callable[..., NodeProcess]
pytestmark = pytest.mark.integration


def group(count: int) -> str:
    return f"instance_group {{ kind: KIND_CPU count: {count} }}"


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    nodes: list[NodeProcess] = []

    def start(*arguments: str) -> NodeProcess:
        nodes.append(NodeProcess(tmp_path / f"node{len(nodes)}.log", *arguments).start())
        return nodes[-1].until_ready()

    yield start
    for node in nodes:
        node.end()


def call(node: NodeProcess, method: str, path: str, document: Any = None) -> tuple[int, Any]:
    answer = httpx2.request(
        method, f"http://127.0.0.1:{node.http}{path}", json=document, timeout=20, trust_env=False, verify=False
    )
    return answer.status_code, json.loads(answer.text) if answer.text else None


def ready(node: NodeProcess, path: str) -> bool:
    return call(node, "GET", f"/v2/models/{path}/ready")[0] == 200


class Traffic:
    """Asks one model again and again over open connections."""

    def __init__(self, node: NodeProcess, clients: int = 4) -> None:
        self.answers = 0
        self.failures: list[str] = []
        self._node = node
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}
        body = json.dumps({"inputs": [tensor]})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._node.http, timeout=20)) as connection:
            while not self._stop.is_set():
                connection.request("POST", "/v2/models/m/infer", body)
                answer = connection.getresponse()
                text = answer.read()
                self.answers += 1
                if answer.status != 200:
                    self.failures.append(text.decode())


def test_requests_flow_while_instances_change_and_the_model_is_reloaded(launch: Launch, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    (repository / "m" / "1").mkdir(parents=True)
    config = repository / "m" / "config.pbtxt"
    config.write_text(CONFIG + group(1))
    node = launch(f"--model-repository={repository}", "--model-control-mode=explicit", "--load-model=m")

    def count() -> int:
        [row] = call(node, "GET", "/v2/models/m/stats")[1]["model_stats"]
        return int(row["inference_count"])

    with Traffic(node) as traffic:
        for instances in (3, 1, 2):
            before = count()
            config.write_text(CONFIG + group(instances))
            assert call(node, "POST", "/v2/repository/models/m/load") == (200, None)
            assert count() >= before, "statistics go on"
            shown = call(node, "GET", "/v2/models/m/config")[1]["instance_group"]
            assert [one["count"] for one in shown] == [instances]
        for size in (4, 2):
            config.write_text(CONFIG.replace("max_batch_size: 8", f"max_batch_size: {size}"))
            assert call(node, "POST", "/v2/repository/models/m/load") == (200, None)
            assert call(node, "GET", "/v2/models/m/config")[1]["max_batch_size"] == size
        config.write_text(CONFIG + "nonsense")
        assert call(node, "POST", "/v2/repository/models/m/load")[0] == 500
        answers = traffic.answers
        eventually(lambda: traffic.answers > answers + 10, "it serves on")
    assert traffic.failures == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        httpx2.put(f"http://{host}:{port}/models", trust_env=False, verify=False)
        keys = {"access_key_id": "very-secret-id", "secret_access_key": "very-secret-key"}
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["secret_access_key"])
        store = S3Store("models", endpoint=f"http://{host}:{port}", client_options={"allow_http": True}, **keys)
        yield f"s3://{host}:{port}/models/all", store
    finally:
        server.stop()


def test_node_follows_a_bucket(launch: Launch, bucket: tuple[str, Any]) -> None:
    url, store = bucket
    obstore.put(store, "all/m/config.pbtxt", CONFIG.encode())
    obstore.put(store, "all/m/1/anything", b"x")
    node = launch(f"--model-repository={url}", "--model-control-mode=poll", "--repository-poll-secs=1")
    assert ready(node, "m/versions/1")
    obstore.put(store, "all/m/2/anything", b"x")
    obstore.put(store, "all/new/config.pbtxt", CONFIG.encode())
    obstore.put(store, "all/new/1/", b"")
    eventually(lambda: ready(node, "m/versions/2") and ready(node, "new"), "what came serves")
    obstore.delete(store, "all/m/1/anything")
    obstore.delete(store, "all/m/2/anything")
    obstore.delete(store, "all/m/config.pbtxt")
    eventually(lambda: not ready(node, "m"), "what went does not")
    rows = call(node, "POST", "/v2/repository/index")[1]
    assert rows == [{"name": "new", "version": "1", "state": "READY"}]
    assert node.end() == 0
    assert "very-secret" not in node.said()
