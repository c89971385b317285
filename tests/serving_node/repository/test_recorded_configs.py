"""What a real Triton said to configs, good and bad, and what we say. Recorded by tests/contract/record_configs.py."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config import ModelConfig, parse_json, to_json
from serving_node.core.backend import Device, Host, ModelSource
from serving_node.core.errors import InferenceError
from serving_node.core.execution import Execution
from serving_node.repository.loading import LoadOrder
from serving_node.repository.local import PollError
from serving_node.repository.polled import PollRules, poll_folder
from serving_node.repository.repository import ControlMode, ModelRepository
from serving_node.scheduling.ensemble_loader import linked
from serving_node.scheduling.model_loader import load_served_model
from serving_node.scheduling.served_model import ServedModel
from tests.contract.config_cases import BASES, CASES, Case
from tests.contract.record_configs import RECORDED, write_model

from .served import served_model

WORKER = Path(__file__).parents[3] / "serving_node" / "backends" / "python" / "worker"
CODES = {"Invalid argument": ErrorCode.INVALID_ARG, "Internal": ErrorCode.INTERNAL}
# The reason of these is only in the log, where ours is better: it names the place.
PARSERS_OWN = ("Invalid config override", "failed to read text proto")

# Where we differ, and why; each is in docs/reference/differences.md.
ACCEPTED = {
    "version_latest_zero": "no number of latest versions means one; Triton serves none",
    "version_latest_empty": "no number of latest versions means one; Triton serves none",
    "version_missing": "said by the repository, not by the loader",
    "agents_none": "Triton crashes",
    "runtime_missing": "there are no libraries here that a config could name",
    "metrics": "newer than the Triton that was asked",
    "ensemble_inflight": "newer than the Triton that was asked",
}
REFUSED = {
    "twice_in": "an input that is given twice is a mistake",
    "twice_out": "an output that is given twice is a mistake",
    "sequence_input_name": "an input that is given twice is a mistake",
    "no_file": "Triton hangs",
    "file_escapes": "Triton hangs",
    "json_twice": "a field that is given twice is a mistake",
    "complete_bad_type": "Triton drops all inputs when one has an unknown type",
    "complete_lower_type": "Triton drops all inputs when one has an unknown type",
}
OTHER_SENTENCE = {
    "ensemble_no_io": "which of two unused tensors is named",
    "runtime_escapes": "refused as newer releases do",
    "backend_unknown": "names what there is",
    "backend_escapes": "names what there is",
    "labels_missing": "without the folder twice",
    "labels_escape": "refused for where it lies",
    "warmup_input": "the words are of Triton's log of another order",
    "warmup_short_file": "a space that Triton forgets",
}


class Instance:
    """Answers everything with nothing."""

    def execute(self, execution: Execution) -> None:
        execution.results.extend([] for _ in execution.requests)

    def close(self) -> None: ...


class Model:
    """A Python model whose code runs here, to complete its config."""

    def __init__(self, source: ModelSource, pb_utils: ModuleType) -> None:
        self._source = source
        self._pb_utils = pb_utils

    def signature(self) -> None: ...

    def describe(self, config: ModelConfig) -> Mapping[str, Any] | None:
        path = self._source.directory / (config.default_model_filename or "model.py")
        if not path.is_file():
            raise InferenceError(ErrorCode.INTERNAL, f"Python model file not found in '{path}'")
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        kind = names["TritonPythonModel"]
        if not hasattr(kind, "auto_complete_config"):
            return None
        try:
            returned = kind.auto_complete_config(self._pb_utils.ModelConfig(json.dumps(to_json(config))))
        except Exception as error:
            raise InferenceError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error}") from error
        if not isinstance(returned, self._pb_utils.ModelConfig):
            text = f"auto_complete_config function in model '{config.name}' must return a valid pb.ModelConfig object."
            raise InferenceError(ErrorCode.INTERNAL, text)
        described: dict[str, Any] = returned.as_dict()
        return described

    def create_instance(self, device: Device, config: ModelConfig, name: str) -> Instance:
        return Instance()

    def memory_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


class Backend:
    """Opens models."""

    name = "python"

    def __init__(self, pb_utils: ModuleType) -> None:
        self._pb_utils = pb_utils

    def open_model(self, source: ModelSource) -> Model:
        return Model(source, self._pb_utils)


class OneBackend:
    """The registry of a node that has only that backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def get(self, name: str, host: Host | None = None) -> Backend:
        if name != "python":
            raise InferenceError(ErrorCode.INVALID_ARG, f"no backend '{name}'")
        return self._backend


@pytest.fixture(scope="module")
def pb_utils() -> Iterator[ModuleType]:
    sys.path.insert(0, str(WORKER))
    try:
        import triton_python_backend_utils

        yield triton_python_backend_utils
    finally:
        sys.path.remove(str(WORKER))


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return loaded


async def ours(case: Case, repository: Path, pb_utils: ModuleType) -> dict[str, Any]:
    """Return what we say to a case: a config, or the reason why it cannot be read or loaded."""
    write_model(repository, case)
    try:
        polled = poll_folder(repository / case.name, PollRules(), case.override)
    except PollError as error:
        return {"poll": str(error)}
    config = polled.config
    if config.HasField("ensemble_scheduling"):
        return await our_ensemble(case, repository)
    try:
        served = await load_served_model(
            name=case.name,
            version=1,
            version_dir=repository / case.name / "1",
            config=config,
            backends=OneBackend(Backend(pb_utils)),  # type: ignore[arg-type]
        )
    except InferenceError as error:
        return {"load": error.message.replace(str(repository), "REPOSITORY"), "code": error.code}
    await served.close()
    return {"config": to_json(served.config)}


async def our_ensemble(case: Case, folder: Path) -> dict[str, Any]:
    """Return the same for an ensemble, in a repository with the models that it may name."""
    for base in BASES:
        write_model(folder, base)
    known = json.loads(RECORDED.read_text())
    repository: ModelRepository

    async def load(order: LoadOrder) -> ServedModel:
        served = served_model(order.name, order.version)
        if order.config.HasField("ensemble_scheduling"):
            steps = order.config.ensemble_scheduling.step
            models = [repository.resolve(step.model_name, "", None).config for step in steps]
            served.config.CopyFrom(linked(order.config, models))
        else:
            served.config.CopyFrom(parse_json(known[order.name]["config"]))
        return served

    repository = ModelRepository([folder], load, mode=ControlMode.EXPLICIT)
    try:
        await repository.load(case.name, case.override, {})
    except InferenceError as error:
        return {"load": error.message}
    document = to_json(repository.resolve(case.name, "", None).config)
    del document["ensemble_scheduling"]["max_inflight_requests"]  # newer than the Triton that was asked
    return {"config": document}


def theirs(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what Triton said, in the same form; of stack traces the first line."""
    if "config" in answer:
        return answer
    if "reason" in answer:
        return {"poll": answer["reason"].removesuffix('"')}
    text = answer.get("error", "")
    match = re.search(r"UNAVAILABLE state: ([\w ]+): (.*);\n$", text, re.DOTALL)
    if match is None:
        return {"load": text}
    return {"load": match.group(2).partition("\n\nAt:")[0], "code": CODES[match.group(1)]}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_we_say_what_triton_says(
    case: Case, tmp_path: Path, pb_utils: ModuleType, recorded: dict[str, dict[str, Any]]
) -> None:
    expected, answer = theirs(recorded[case.name]), await ours(case, tmp_path, pb_utils)
    if case.name in ACCEPTED:
        assert "config" in answer and "config" not in expected
    elif case.name in REFUSED:
        assert "config" not in answer
    elif case.name in OTHER_SENTENCE:
        assert answer.keys() == expected.keys() or "config" not in answer
    elif expected.get("poll", "").startswith(PARSERS_OWN):
        assert "poll" in answer
    else:
        assert answer == expected
