from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from serving_node.backends.loader import Backends
from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.states import ModelState
from serving_node.core.errors import InferenceError
from serving_node.core.metadata import IndexEntry
from serving_node.core.request import InferenceRequest, InferenceResponse
from serving_node.core.tensor import Tensor
from serving_node.dataplane import EXTENSIONS, DataPlane
from serving_node.observability.tracing.options import TraceOptions
from serving_node.observability.tracing.settings import changes_from_json
from serving_node.observability.tracing.tracer import Tracer
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel

CONFIG = """
name: "echo" backend: "identity" max_batch_size: 8 dynamic_batching { }
input { name: "IN" data_type: TYPE_FP32 dims: 2 } output { name: "OUT" data_type: TYPE_FP32 dims: 2 }
instance_group { count: 1 kind: KIND_CPU }
"""


class OneModel:
    """A repository that holds what it is given."""

    def __init__(self) -> None:
        self.served: list[ServedModel] = []
        self.calls: list[tuple[object, ...]] = []

    def resolve(self, name: str, version: str, request: InferenceRequest | None) -> ServedModel:
        for model in reversed(self.served):
            if model.name == name and version in ("", str(model.version)):
                return model
        raise InferenceError(ErrorCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")

    def models(self) -> list[ServedModel]:
        return self.served

    def ready(self) -> bool:
        return bool(self.served)

    def index(self) -> list[IndexEntry]:
        return [IndexEntry("echo", "1", ModelState.READY), IndexEntry("broken", "1", ModelState.UNAVAILABLE, "why")]

    async def load(self, name: str, config_json: str | None, files: dict[str, bytes]) -> None:
        self.calls.append(("load", name, config_json, files))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.calls.append(("unload", name, unload_dependents))


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[OneModel]:
    held = OneModel()
    for version in (1, 3):
        held.served.append(
            await load_served_model(
                name="echo",
                version=version,
                version_dir=tmp_path / str(version),
                config=parse_pbtxt(CONFIG),
                backends=Backends(),
            )
        )
    yield held
    for model in held.served:
        await model.close()


def request(on_response, data: bytes = bytes(8), shape: tuple[int, ...] = (1, 2)) -> InferenceRequest:
    return InferenceRequest("echo", "", [Tensor("IN", "FP32", shape, data)], on_response, "r")


async def ask(dataplane: DataPlane, *datas: bytes) -> list[InferenceResponse]:
    answers: list[InferenceResponse] = []
    done = asyncio.Event()

    def answered(response: InferenceResponse) -> None:
        answers.append(response)
        if len(answers) == len(datas):
            done.set()

    for data in datas:
        dataplane.infer(request(answered, data))
    await asyncio.wait_for(done.wait(), 30)
    return answers


async def test_concurrent_requests_are_batched_and_counted(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    answers = await ask(dataplane, *(bytes([value] * 8) for value in range(5)))

    assert sorted(bytes(answer.outputs[0].data) for answer in answers) == [bytes([value] * 8) for value in range(5)]
    assert {(answer.model_name, answer.model_version, answer.id) for answer in answers} == {("echo", "3", "r")}
    (statistics,) = dataplane.statistics("echo", "3")
    assert statistics.inference_count == 5
    assert statistics.execution_count == 1
    assert [(batch.batch_size, batch.compute_infer.count) for batch in statistics.batch_stats] == [(5, 1)]
    assert statistics.inference_stats.success.count == statistics.inference_stats.queue.count == 5
    assert statistics.inference_stats.success.ns >= statistics.inference_stats.compute_infer.ns // 5
    assert answers[0].timing is not None


async def test_validation_errors_are_raised_and_not_counted(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    answers: list[InferenceResponse] = []
    with pytest.raises(InferenceError, match=r"unexpected shape for input 'IN' for model 'echo'\. Expected \[-1,2\]"):
        dataplane.infer(request(answers.append, bytes(12), (1, 3)))
    assert answers == []
    assert dataplane.statistics("echo", "3")[0].inference_stats.fail.count == 0


async def test_metadata_names_ready_versions(repository: OneModel) -> None:
    dataplane = DataPlane(repository, server_name="n", server_version="1.2")
    metadata = dataplane.model_metadata("echo", "")
    assert metadata.versions == ("1", "3")
    assert dataplane.model_metadata("echo", "1").versions == ("1",)
    assert [(t.name, t.datatype, t.shape) for t in metadata.inputs] == [("IN", "FP32", (-1, 2))]
    assert metadata.platform == "identity"
    assert dataplane.server_metadata().extensions == EXTENSIONS
    assert (dataplane.server_metadata().name, dataplane.server_metadata().version) == ("n", "1.2")
    assert list(dataplane.model_config("echo", "").dynamic_batching.preferred_batch_size) == [8]


async def test_statistics_of_the_unknown_are_refused(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    assert [(s.name, s.version) for s in dataplane.statistics("", "")] == [("echo", "1"), ("echo", "3")]
    with pytest.raises(InferenceError, match=r"^requested model 'x' is not available$") as caught:
        dataplane.statistics("x", "")
    assert caught.value.code is ErrorCode.INVALID_ARG
    with pytest.raises(InferenceError, match=r"^requested model version is not available for model 'echo'$"):
        dataplane.statistics("echo", "2")


async def test_readiness(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    assert dataplane.server_live()
    assert dataplane.server_ready()
    assert dataplane.model_ready("echo", "3")
    assert not dataplane.model_ready("echo", "2")
    assert not dataplane.model_ready("x", "")
    assert dataplane.statistics("echo", "03")[0].version == "3"
    for question in (dataplane.model_ready, dataplane.statistics):
        with pytest.raises(InferenceError, match=r"'new' \(details: stol\)"):
            question("echo", "new")
    dataplane.stop()
    assert not dataplane.server_ready()


async def test_index_can_be_limited_to_ready(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    assert [entry.name for entry in dataplane.repository_index(False)] == ["echo", "broken"]
    assert [entry.name for entry in dataplane.repository_index(True)] == ["echo"]


async def test_last_counts_of_an_unloaded_version_can_still_be_scraped(repository: OneModel) -> None:
    now = 0.0
    joined = DataPlane(repository, joined=True, clock=lambda: now)

    def counted() -> dict[str, int]:
        return {known.version: known.statistics.success.count for known in joined.model_series()}

    await ask(joined, bytes(8))
    assert counted() == {"1": 0, "3": 1}
    await ask(joined, bytes(8), bytes(8))
    gone = repository.served.pop()
    assert counted() == {"1": 0, "3": 3}
    now = 29.0
    assert counted() == {"1": 0, "3": 3}
    now = 31.0
    assert counted() == {"1": 0}
    repository.served.append(gone)
    assert list(counted()) == ["1", "3"]


async def test_joined_node_refuses_changes(repository: OneModel) -> None:
    joined = DataPlane(repository, joined=True)
    with pytest.raises(InferenceError, match="managed by a control plane") as caught:
        await joined.load("echo", None, {})
    assert caught.value.code is ErrorCode.UNAVAILABLE
    with pytest.raises(InferenceError, match="managed by a control plane"):
        await joined.unload("echo", False)
    with pytest.raises(InferenceError, match="managed by a control plane"):
        joined.update_log_settings({"log_info": False})
    assert repository.calls == []

    alone = DataPlane(repository)
    await alone.load("echo", "{}", {})
    await alone.unload("echo", True)
    assert repository.calls == [("load", "echo", "{}", {}), ("unload", "echo", True)]


async def test_log_settings_change_together_or_not_at_all(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    assert dataplane.update_log_settings({"log_info": False})["log_info"] is False
    with pytest.raises(InferenceError, match="log_verbose_level"):
        dataplane.update_log_settings({"log_warning": False, "log_verbose_level": -1})
    assert dataplane.log_settings()["log_warning"] is True
    with pytest.raises(InferenceError, match="can not be updated through network protocol") as caught:
        dataplane.update_log_settings({"log_file": "/etc/passwd"})
    assert caught.value.code is ErrorCode.UNSUPPORTED


class Notes:
    """A trace that remembers."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, model: str, version: str, request_id: str, ns: int) -> None:
        self.seen.append(f"begin {model} {version} {request_id}")

    def mark(self, activity: str, ns: int) -> None:
        self.seen.append(activity)

    def tensors(self, activity: str, tensors: Sequence[Tensor]) -> None:
        self.seen.append(f"{activity} {[tensor.name for tensor in tensors]}")

    def context(self) -> str:
        return ""

    def end(self, ns: int) -> None:
        self.seen.append("end")

    def finish(self) -> None:
        self.seen.append("finish")


async def test_traced_request_is_noted_from_begin_to_end(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    notes, done = Notes(), asyncio.Event()
    traced = request(lambda response: done.set())
    traced.trace = notes
    dataplane.infer(traced)
    await asyncio.wait_for(done.wait(), 30)
    assert notes.seen == [
        "begin echo 3 r",
        "QUEUE_START",
        "TENSOR_QUEUE_INPUT ['IN']",
        "TENSOR_BACKEND_OUTPUT ['OUT']",
        "COMPUTE_START",
        "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START",
        "COMPUTE_END",
        "end",
    ]


async def test_trace_ends_with_a_request_that_the_scheduler_does_not_take(repository: OneModel) -> None:
    notes = Notes()
    for model in repository.served:
        await model.close()
    refused = request(lambda response: None)
    refused.trace = notes
    with pytest.raises(InferenceError):
        DataPlane(repository).infer(refused)
    assert notes.seen == ["begin echo 3 r", "end"]


async def test_trace_settings_of_known_models(repository: OneModel, tmp_path: Path) -> None:
    tracer = Tracer(TraceOptions(file=str(tmp_path / "trace")))
    dataplane = DataPlane(repository, tracer=tracer)
    assert dataplane.tracing is None
    changes = changes_from_json({"trace_level": ["TIMESTAMPS"]})
    assert dataplane.update_trace_settings("echo", changes)["trace_level"] == ["TIMESTAMPS"]
    assert dataplane.trace_settings("")["trace_level"] == ["OFF"]
    assert dataplane.tracing is tracer
    dataplane.update_trace_settings("echo", changes_from_json({"trace_level": None}))
    assert dataplane.tracing is None
    for call in (lambda: dataplane.trace_settings("x"), lambda: dataplane.update_trace_settings("x", changes)):
        with pytest.raises(InferenceError, match="Request for unknown model : x") as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_ARG

    joined = DataPlane(repository, tracer=tracer, joined=True)
    assert joined.update_trace_settings("echo", {})["trace_rate"] == ["1000"]
    with pytest.raises(InferenceError, match="managed by a control plane"):
        joined.update_trace_settings("echo", changes)


async def test_verbose_log_has_a_line_for_each_request(repository: OneModel) -> None:
    dataplane = DataPlane(repository)
    root, level = logging.getLogger(), logging.getLogger().level
    try:
        with capture_logs() as lines:
            await ask(dataplane, bytes(8))
            dataplane.update_log_settings({"log_verbose_level": 1})
            await ask(dataplane, bytes(8))
            with pytest.raises(InferenceError):
                dataplane.infer(request(lambda response: None, bytes(4)))
    finally:
        root.setLevel(level)
    answered, refused = lines
    assert (answered["event"], answered["request_id"], answered["model"], answered["version"]) == (
        "infer.answered",
        "r",
        "echo",
        "3",
    )
    assert answered["responses"] == 1
    assert (refused["event"], refused["request_id"]) == ("infer.refused", "r")
    assert "error" in refused


class Keeper:
    """Keeps the requests that it is told to keep, and remembers what it was asked."""

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps
        self.asked: list[str] = []

    def take(self, request: InferenceRequest, submit: object) -> bool:
        self.asked.append(request.model_name)
        return self.keeps

    def wait(self, name: str, then: object) -> None:
        self.asked.append(f"wait {name}")

    async def settle(self, name: str) -> None:
        self.asked.append(f"settle {name}")

    def close(self) -> None:
        self.asked.append("close")


async def test_only_requests_that_find_no_model_go_to_whoever_loads_on_request(repository: OneModel) -> None:
    keeper = Keeper(keeps=True)
    dataplane = DataPlane(repository, absent=keeper)
    [answer] = await ask(dataplane, bytes(8))
    assert answer.error is None
    assert keeper.asked == []
    other = InferenceRequest("other", "", [], print)
    dataplane.infer(other)
    keeper.keeps = False
    with pytest.raises(InferenceError, match="Request for unknown model: 'other' is not found"):
        dataplane.infer(other)
    await dataplane.load("echo", None, {})
    dataplane.stop()
    assert keeper.asked == ["other", "other", "settle echo", "close"]
