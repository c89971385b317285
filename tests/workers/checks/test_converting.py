"""Uploads that nodes do not serve as they are become ONNX in the sandbox, as versions of their own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.models import Check, ModelVersion, Operation, RegisteredModel
from registry.services.code import project_code_formats
from tests.workers import factories
from workers.checks import converting
from workers.sandbox import Ending, Outcome, SandboxUnavailable
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, settings: Any) -> None:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()
    settings.SANDBOX, settings.SANDBOX_SECONDS = True, 120


def handed_in(files: dict[str, bytes], **columns: Any) -> tuple[ModelVersion, Operation]:
    model = RegisteredModel.objects.first() or factories.make_model()
    version = factories.make_version(model, files)
    ModelVersion.objects.filter(pk=version.pk).update(**columns)
    operation = factories.make_operation(version)
    work_on(operation.pk)
    version.refresh_from_db()
    operation.refresh_from_db()
    return version, operation


@pytest.fixture(scope="module")
def regression() -> bytes:
    from sklearn.linear_model import LinearRegression

    rows = np.random.default_rng(0).normal(size=(50, 3))
    return pickle.dumps(LinearRegression().fit(rows, rows @ [1.0, 2.0, 3.0]))


def test_a_pickle_becomes_a_version_in_onnx_that_says_where_it_comes_from(
    regression: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.services.versions.checks_begin", lambda **_options: None)
    version, operation = handed_in({"model.pkl": regression, "notes.txt": b"hello"}, source={"git_sha": "abcd1234"})
    assert version.state == "abandoned", operation.error
    row = Check.objects.get(version=version, kind="conversion")
    assert row.verdict == "pass" and row.evidence["report"]["source"]["name"] == "model.pkl"
    assert Check.objects.get(version=version, kind="pickle_scan").verdict in ("pass", "warn")
    [made] = operation.result["made"]
    new = ModelVersion.objects.get(pk=made["version"])
    work_on(Operation.objects.get(pk=made["operation"]).pk)
    new.refresh_from_db()
    assert (new.state, new.number, new.format) == ("ready", 1, "onnx"), new.state_reason
    assert sorted(new.files.values_list("path", flat=True)) == ["model.onnx", "notes.txt"]
    assert new.source["git_sha"] == "abcd1234" and new.source["converted_from"]["file"] == "model.pkl"
    assert new.metadata["import"] == {"layout": "converted", "file": "model.pkl", "upload": str(version.pk)}
    assert Check.objects.get(version=new, kind="conversion").verdict == "pass"
    assert not list((tmp_path / "staging").glob("convert-*"))


def test_what_cannot_be_converted_is_refused_with_the_reason_and_the_way_out() -> None:
    version, _operation = handed_in({"m.json": b'{"learner":{}}'})
    assert version.state == "rejected" and "flotilla convert m.json" in version.state_reason
    assert Check.objects.get(version=version, kind="conversion").verdict == "fail"
    assert not ModelVersion.objects.exclude(pk=version.pk).exists()


def test_a_project_without_code_reads_no_pickle(regression: bytes) -> None:
    model = factories.make_model()
    project_code_formats(project=model.project, code_formats="forbid", actor=factories.SYSTEM)
    version, _operation = handed_in({"model.pkl": regression})
    assert version.state == "rejected" and "does not allow code" in version.state_reason


@pytest.mark.parametrize(
    ("ending", "answer", "sentence", "verdict"),
    [
        (Ending.DEADLINE, b"", "took longer than 120 seconds", "fail"),
        (Ending.MEMORY, b"", "of memory", "fail"),
        (Ending.ITSELF, b"", "no good report", "fail"),
        (Ending.ITSELF, b"[]\n", "no good report", "fail"),
        (Ending.ITSELF, b'{"report": {}, "size": 1}\n', "no good report", "fail"),
        (Ending.ITSELF, b'{"error": "It needs onnx."}\n', "It needs onnx", "fail"),
        (None, b"", "cannot be had", "error"),
    ],
    ids=["late", "large", "silent", "list", "hollow", "refused", "nowhere"],
)
def test_whatever_the_sandbox_says_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, ending: Ending | None, answer: bytes, sentence: str, verdict: str
) -> None:
    def run(_command: Any, _limits: Any, _is_stopped: Any, file: Any) -> Outcome:
        if ending is None:
            raise SandboxUnavailable("The sandbox cannot be had.")
        file.write(answer)
        return Outcome(ending, 0, "words", b"", 0, 1.0)

    monkeypatch.setattr(converting, "run", run)
    version, _operation = handed_in({"m.txt": b"tree\nversion=v4\n"})
    row = Check.objects.get(version=version, kind="conversion")
    assert (version.state, row.verdict) == ("rejected", verdict)
    assert sentence in version.state_reason and "flotilla convert m.txt" in version.state_reason


def test_a_report_about_another_file_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = {"sha256": "0" * 64, "size": 1, "format": "xgboost", "name": "m.txt"}
    report = {
        "source": digest,
        "target": {**digest, "format": "onnx"},
        "steps": ["onnx"],
        "tolerance": {"relative": 0.0, "absolute": 0.0},
        "samples": {"rows": [1], "seed": 0},
        "outputs": [],
        "notes": [],
        "verdict": "pass",
    }

    def run(_command: Any, _limits: Any, _is_stopped: Any, file: Any) -> Outcome:
        file.write(json.dumps({"report": report, "size": 0}).encode() + b"\n")
        return Outcome(Ending.ITSELF, 0, "", b"", 0, 1.0)

    monkeypatch.setattr(converting, "run", run)
    version, operation = handed_in({"m.txt": b"tree\nversion=v4\n"})
    assert version.state == "rejected", operation.error
    assert not ModelVersion.objects.exclude(pk=version.pk).exists()
