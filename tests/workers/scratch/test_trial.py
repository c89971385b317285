"""Trials on real scratch nodes in the real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openvino
import pytest

from registry.domain.actors import Actor
from registry.models import Check, ModelVersion, Operation
from registry.selectors.configs import config_latest
from registry.services.checks import check_rerun
from tests.workers import factories
from tests.workers.checks import onnx_models
from tests.workers.scratch import models
from workers.checks.sample_files import SAMPLES_FILE
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def sandboxed(settings: Any) -> None:
    settings.SANDBOX = True
    settings.SANDBOX_SECONDS = 100


def validated(files: dict[str, bytes]) -> ModelVersion:
    version = factories.make_version(factories.make_model(), files)
    work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    return version


def row(version: ModelVersion, kind: str) -> Check:
    return Check.objects.get(version=version, kind=kind)


def work(version: ModelVersion) -> None:
    """Do what is to be done about a version, as workers would."""
    for operation in Operation.objects.filter(subject_id=version.pk, state="pending"):
        work_on(operation.pk)


def recheck(version: ModelVersion, kind: str) -> Check:
    check_rerun(version=version, kind=kind, actor=Actor.system("tests"))
    work(version)
    return row(version, kind)


def test_a_python_model_tells_its_signature_and_answers() -> None:
    version = validated({"model.py": models.PYTHON})
    check = row(version, "signature")
    assert (version.state, check.verdict) == ("ready", "pass"), (version.state_reason, check.log)
    assert version.signature is not None
    assert [(one["name"], one["shape"]) for one in version.signature["inputs"]] == [("x", [-1, 3])]
    config = config_latest(version.model)
    assert config is not None
    assert (config.body["max_batch_size"], config.body["backend"]) == (16, "python")
    assert row(version, "smoke").verdict == "running"
    work(version)
    smoke = row(version, "smoke")
    assert (smoke.verdict, smoke.summary) == ("pass", "2 answers are as the config says."), smoke.log
    outputs = [answer["outputs"] for answer in smoke.evidence["answers"]]
    assert [[(one["name"], one["shape"]) for one in answer] for answer in outputs] == [[("y", [1, 1])], [("y", [2, 1])]]
    assert smoke.evidence["load_seconds"] > 0
    assert smoke.evidence["peak_memory_bytes"] > 0
    assert "running" in smoke.log  # what the model prints


def test_an_openvino_model_without_a_config_tells_its_signature(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_models.linear(width=4).SerializeToString())
    openvino.save_model(openvino.convert_model(str(path)), str(tmp_path / "model.xml"))
    version = validated({name: (tmp_path / name).read_bytes() for name in ("model.xml", "model.bin")})
    check = row(version, "signature")
    assert (version.state, check.verdict) == ("ready", "pass"), (version.state_reason, check.log)
    assert version.signature is not None
    assert [(one["name"], one["shape"]) for one in version.signature["inputs"]] == [("x", [-1, 4])]
    work(version)
    assert row(version, "smoke").verdict == "pass", row(version, "smoke").summary


def test_an_answer_that_is_not_as_promised_fails() -> None:
    version = validated({"model.py": models.PYTHON.replace(b"one.astype", b"one.repeat(2, axis=1).astype")})
    work(version)
    smoke = row(version, "smoke")
    assert (smoke.verdict, smoke.summary) == ("fail", "Output “y” has the shape [1, 2], the config says [1, 1].")
    version.refresh_from_db()
    assert version.state == "ready"


def test_numbers_that_are_none_are_warned_of() -> None:
    version = validated(
        {"model.py": models.PYTHON.replace(b"one.astype(np.float32)", b"(one * np.nan).astype(np.float32)")}
    )
    work(version)
    smoke = row(version, "smoke")
    assert smoke.verdict == "warn"
    assert smoke.summary == "Output “y” has 1 values that are no number and 0 that are infinite."


def test_latency_is_advice_and_a_sample_is_sent_as_it_is() -> None:
    sample = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 4], "data": [1.0] * 12}]}
    files = {"model.onnx": onnx_models.linear(width=4).SerializeToString(), SAMPLES_FILE: json.dumps(sample).encode()}
    version = validated(files)
    assert version.state == "ready", version.state_reason
    work(version)
    smoke = row(version, "smoke")
    assert (smoke.verdict, smoke.summary) == ("pass", "1 answer is as the config says."), (smoke.summary, smoke.log)
    assert smoke.evidence["answers"][0]["outputs"][0]["shape"][0] == 3
    latency = recheck(version, "latency")
    assert latency.verdict == "pass", (latency.summary, latency.log)
    cells = latency.evidence["cells"]
    assert [cell["batch"] for cell in cells] == [1, 8]
    assert all(0 < cell["latency_p50_ms"] <= cell["latency_p99_ms"] for cell in cells)


def test_a_bad_sample_fails() -> None:
    onnx = onnx_models.linear(width=4).SerializeToString()
    version = validated({"model.onnx": onnx, SAMPLES_FILE: b"[]"})
    work(version)
    smoke = row(version, "smoke")
    assert smoke.verdict == "fail"
    assert smoke.summary == "sample_inputs.json must hold 1 to 16 requests with a list “inputs” each."


STARTS_NOT = b"""    def initialize(self, args):
        import os
        os._exit(3)

    def execute"""
CRASHES = models.PYTHON.replace(b"    def execute", STARTS_NOT)


def test_a_model_that_crashes_is_not_ready_and_its_log_is_kept() -> None:
    broken = models.PYTHON.replace(b"config.add_input", b"print('about to')\n        config.no_such")
    version = validated({"model.py": broken})
    assert version.state == "rejected"
    assert version.state_reason.startswith("Inputs and outputs are not known: A scratch node could not load it:")
    check = row(version, "signature")
    assert check.verdict == "fail"
    assert "about to" in check.log


def test_a_model_that_does_not_start_fails_but_stays() -> None:
    config = b"""
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: 3 }
    output { name: "y" data_type: TYPE_FP32 dims: 1 }
    """
    version = validated({"model.py": CRASHES, "config.pbtxt": config})
    assert row(version, "signature").verdict == "warn"
    assert "As the config says, unseen: A scratch node could not load it" in version.state_reason
    work(version)
    version.refresh_from_db()
    smoke = row(version, "smoke")
    assert (version.state, smoke.verdict) == ("ready", "fail")
    assert smoke.summary.startswith("A scratch node could not load it:")


def test_a_model_that_reaches_out_finds_nothing(tmp_path: Path) -> None:
    spy = models.PYTHON.replace(
        b"config.add_input",
        b"""import os, socket
        print("env", sorted(name for name in os.environ if "DATABASE" in name or "SECRET" in name))
        print("files", os.path.exists(%r), os.path.exists("/home"), os.path.exists("/var"))
        try:
            socket.create_connection(("192.0.2.1", 80), 2)
        except OSError as error:
            print("network", type(error).__name__)
        config.add_input"""
        % str(tmp_path).encode(),
    )
    version = validated({"model.py": spy})
    log = row(version, "signature").log
    assert "env []" in log, log
    assert "files False False False" in log
    assert "network OSError" in log


@pytest.mark.slow
def test_an_exported_program_tells_its_signature() -> None:
    version = validated({"model.pt2": models.exported()})
    check = row(version, "signature")
    assert (version.state, check.verdict) == ("ready", "pass"), (version.state_reason, check.log)
    assert version.signature is not None
    assert [(one["name"], one["shape"]) for one in version.signature["inputs"]] == [("vector", [-1, 3])]
    assert [(one["name"], one["shape"][0]) for one in version.signature["outputs"]]
    work(version)
    assert row(version, "smoke").verdict == "pass", row(version, "smoke").summary


@pytest.mark.slow
def test_a_script_has_the_signature_of_its_config_and_answers() -> None:
    config = b"""
    max_batch_size: 4
    input { name: "vector" data_type: TYPE_FP32 dims: 3 }
    output { name: "length" data_type: TYPE_FP32 dims: 1 }
    """
    version = validated({"model.pt": models.scripted(), "config.pbtxt": config})
    assert (version.state, row(version, "signature").summary) == ("ready", "As the config says.")
    work(version)
    assert row(version, "smoke").verdict == "pass", row(version, "smoke").summary


ENSEMBLE = b"""
platform: "ensemble"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
ensemble_scheduling {
  step { model_name: "mlp" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }
}
"""


def test_an_ensemble_is_tried_with_the_models_that_it_calls() -> None:
    chain = factories.make_model("chain")
    files = {"config.pbtxt": ENSEMBLE}
    early = factories.make_version(chain, files)
    work_on(factories.make_operation(early).pk)
    early.refresh_from_db()
    assert (early.state, early.format) == ("ready", "ensemble"), early.state_reason
    work(early)
    smoke = row(early, "smoke")
    assert (smoke.verdict, smoke.summary) == ("error", "It calls “mlp”, of which no version is ready.")
    factories.make_ready_version(factories.make_model("mlp", chain.owner))
    smoke = recheck(early, "smoke")
    assert (smoke.verdict, smoke.evidence["parts"]) == ("pass", ["mlp v1"]), (smoke.summary, smoke.log)
    assert [one["name"] for one in smoke.evidence["answers"][0]["outputs"]] == ["y"]
