from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from registry.domain.actors import Actor
from registry.errors import StorageFailed
from registry.models import Check, ConfigRevision, ModelVersion, Operation, UploadState
from registry.services.conversions import conversion_attach
from registry.storage import ArtifactStore
from serving_node.contract.conversion import (
    ConversionReport,
    ConvertedFile,
    OutputComparison,
    SampleInputs,
    Tolerance,
)
from tests.workers import factories
from tests.workers.checks import onnx_models as models
from workers.checks.validation import reject_stranded
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, settings: Any) -> Iterator[Path]:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()
    yield tmp_path
    assert not list(tmp_path.glob("staging/check-*")), "a check left its copies behind"


@dataclasses.dataclass
class Outcome:
    version: ModelVersion
    operation: Operation

    @property
    def verdicts(self) -> dict[str, str]:
        return dict(Check.objects.filter(version=self.version).values_list("kind", "verdict"))

    @property
    def error(self) -> str:
        assert self.operation.error is not None
        return str(self.operation.error["message"])


def validate(files: dict[str, bytes], version: ModelVersion | None = None) -> Outcome:
    version = version or factories.make_version(factories.make_model(), files)
    operation = factories.make_operation(version)
    work_on(operation.pk)
    version.refresh_from_db()
    operation.refresh_from_db()
    return Outcome(version, operation)


WRONG_TYPE = b"""
max_batch_size: 4
input { name: "x" data_type: TYPE_INT8 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""
VALID = models.linear().SerializeToString()


def test_a_good_version_gets_its_number_signature_and_first_config() -> None:
    outcome = validate({"model.onnx": VALID, "labels/names.txt": b"a\nb\n"})
    assert (outcome.operation.state, outcome.version.state, outcome.version.number) == ("succeeded", "ready", 1)
    assert outcome.operation.result == {"version": str(outcome.version.pk), "number": 1}
    assert set(outcome.verdicts) == {"files", "size", "format", "runtime", "signature", "config", "code"}
    assert set(outcome.verdicts.values()) == {"pass"}
    [found] = outcome.version.signature["inputs"]
    assert (found["name"], found["datatype"], found["shape"]) == ("x", "FP32", [-1, 4])
    assert outcome.version.size_bytes == len(VALID) + 4
    assert outcome.version.format == "onnx"
    config = ConfigRevision.objects.get(model=outcome.version.model)
    assert config.body["input"][0]["name"] == "x"
    assert set(outcome.version.uploads.values_list("state", flat=True)) == {UploadState.STORED}
    evidence = Check.objects.get(version=outcome.version, kind="runtime").evidence
    assert (evidence["ir_version"], evidence["opsets"]) == (8, {"ai.onnx": 17})


def test_the_next_version_of_the_same_content_gets_the_next_number_and_no_second_config() -> None:
    first = validate({"model.onnx": VALID})
    version = factories.make_version(first.version.model, {"model.onnx": VALID})
    second = validate({}, version)
    assert (second.version.number, second.version.manifest_digest) == (2, first.version.manifest_digest)
    assert ConfigRevision.objects.count() == 1


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"model.onnx": VALID[:-30]}, "model.onnx is truncated"),
        ({"model.onnx": b"just some text, no model\n"}, "model.onnx is not an ONNX file: it is a text file."),
        ({"model.onnx": b"PK\x03\x04" + b"\0" * 50}, "model.onnx is not an ONNX file: it is a ZIP archive"),
        ({"model.onnx": b""}, "model.onnx is empty."),
        ({"m.json": b'{"learner":{}}'}, "m.json is an XGBoost model: convert it with “flotilla convert m.json"),
        ({"m.txt": b"tree\nversion=v4\n"}, "m.txt is a LightGBM model: convert it with “flotilla convert m.txt"),
        ({"m.pkl": b"\x80\x04."}, "m.pkl is a Python pickle: convert it with"),
        ({"m.txt": b"tree\nversion=v4\n", "notes.md": b"hello"}, "m.txt is a LightGBM model: convert it with"),
        ({"model.onnx": models.linear(opset=99).SerializeToString()}, "The file uses opset 99 of ai.onnx"),
        ({"model.onnx": models.linear(ir_version=99).SerializeToString()}, "The file has ONNX IR version 99"),
        ({"model.onnx": models.sequence_output().SerializeToString()}, "The output 'y' is of kind sequence"),
        ({"model.onnx": models.custom_operator(local=False).SerializeToString()}, "The file uses operators of"),
        ({"a.txt": b"hello", "b.txt": b"you"}, "None of the files is an ONNX model"),
        ({"a.onnx": VALID, "b.onnx": VALID + b"\x32\x01a"}, "There are several ONNX files (a.onnx, b.onnx)"),
        ({"model.onnx": VALID, "../up.bin": b"x"}, "The file name must not contain '..'."),
        ({"model.onnx": VALID, "config.pbtxt": b"max_batch_size: {"}, "config.pbtxt cannot be read"),
        (
            {"model.onnx": VALID, "config.pbtxt": WRONG_TYPE},
            "config.pbtxt contradicts the model",
        ),
    ],
)
def test_bad_input_gets_one_clear_sentence_and_leaves_nothing_half_made(files: dict[str, bytes], sentence: str) -> None:
    outcome = validate(files)
    assert outcome.version.state == "rejected"
    assert outcome.version.number is None
    assert outcome.operation.state == "failed"
    assert outcome.operation.error is not None
    assert outcome.operation.error["code"] == "version_rejected"
    assert outcome.version.state_reason == outcome.error
    assert "\n" not in outcome.error.strip()
    assert outcome.error.startswith(sentence)
    assert "fail" in outcome.verdicts.values()
    assert "running" not in outcome.verdicts.values()
    assert not outcome.version.files.exists()


def external(folder: Path, **arguments: Any) -> dict[str, bytes]:
    folder.mkdir()
    path = models.with_external_data(folder, **arguments)
    return {"model.onnx": path.read_bytes(), "weights.bin": (folder / "weights.bin").read_bytes()}


def test_weights_in_another_file_are_found(folders: Path) -> None:
    outcome = validate(external(folders / "made"))
    assert outcome.version.state == "ready"
    evidence = Check.objects.get(version=outcome.version, kind="format").evidence
    assert evidence["external_files"] == ["weights.bin"]


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "a//b", "C:\\weights.bin"])
def test_weights_outside_the_version_are_refused(folders: Path, location: str) -> None:
    outcome = validate(external(folders / "made", location=location))
    assert outcome.version.state == "rejected"
    assert outcome.error.startswith(f"The model keeps weights in '{location}', which is not allowed")


def test_missing_or_short_weights_are_named(folders: Path) -> None:
    files = external(folders / "made")
    missing = validate({"model.onnx": files["model.onnx"]})
    assert missing.error == "The model keeps weights in 'weights.bin', but that file was not uploaded."
    version = factories.make_version(missing.version.model, {**files, "weights.bin": files["weights.bin"][:100]})
    assert "'weights.bin' has 100 bytes" in validate({}, version).error


def test_another_name_is_served_as_the_one_that_nodes_look_for() -> None:
    outcome = validate({"resnet50.onnx": VALID})
    assert outcome.version.state == "ready"
    assert list(outcome.version.files.values_list("path", flat=True)) == ["model.onnx"]
    assert outcome.verdicts["format"] == "warn"


def test_a_config_that_came_along_becomes_the_first() -> None:
    outcome = validate({"model.onnx": VALID, "config.pbtxt": b"max_batch_size: 16\ndynamic_batching { }\n"})
    assert outcome.version.state == "ready", outcome.error
    assert ConfigRevision.objects.get().body["max_batch_size"] == 16


def test_a_stored_config_that_does_not_fit_is_a_warning() -> None:
    first = validate({"model.onnx": VALID})
    wider = models.linear(width=9).SerializeToString()
    second = validate({}, factories.make_version(first.version.model, {"model.onnx": wider}))
    assert second.version.state == "ready"
    assert second.verdicts["config"] == "warn"
    assert "Config 1 does not fit" in second.version.state_reason


def conversion(version: ModelVersion, target: bytes, **output: Any) -> None:
    """Attach a report as the uploader did before the version was submitted."""
    described = [
        ConvertedFile(name, hashlib.sha256(content).hexdigest(), len(content), "onnx")
        for name, content in (("first.onnx", b"first"), ("half.onnx", target))
    ]
    figures = OutputComparison("y", "FP32", **{"elements": 8, **output})
    report = ConversionReport(*described, ("fp16",), Tolerance(0.01, 0.001), SampleInputs((1,), 0), (figures,))
    ModelVersion.objects.filter(pk=version.pk).update(state="uploading")
    conversion_attach(version=version, report=report, actor=Actor.system("tests"))
    ModelVersion.objects.filter(pk=version.pk).update(state="validating")


@pytest.mark.parametrize(
    ("target", "output", "state", "sentence"),
    [
        (VALID, {"worst": 0.5}, "ready", ""),
        (VALID, {"worst": 5.0}, "ready", "the largest difference is 5 of what is allowed."),
        (VALID, {"worst": 50.0}, "rejected", "The converted file answers differently. first.onnx (fp16)"),
        (b"another", {"worst": 0.5}, "rejected", "The conversion report is about another file"),
    ],
)
def test_a_conversion_report_must_fit_and_must_not_fail(
    target: bytes, output: dict[str, Any], state: str, sentence: str
) -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": VALID})
    conversion(version, target, **output)
    outcome = validate({}, version)
    assert outcome.version.state == state
    assert sentence in outcome.version.state_reason
    assert (outcome.verdicts["conversion"] == "fail") == (state == "rejected")


def test_damage_on_the_way_is_rejected() -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": VALID})
    version.uploads.update(expected_sha256="0" * 64)
    assert "digest" in validate({}, version).error


def test_a_full_disk_is_tried_again_and_then_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": VALID})

    def full(self: ArtifactStore, path: Path, sha256: str) -> str:
        raise StorageFailed("The artifact store could not take the file: there is no space left on the disk.")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "take_file", full)
        first = validate({}, version)
    assert (first.operation.state, first.version.state) == ("pending", "validating")
    assert "no space left" in first.error
    assert first.verdicts == {"files": "error"}
    Operation.objects.update(lease_until="2020-01-01T00:00:00Z")
    work_on(first.operation.pk)
    version.refresh_from_db()
    assert (version.state, version.number) == ("ready", 1)


def test_versions_that_nobody_will_finish_are_rejected() -> None:
    version = factories.make_version(factories.make_model(), {"model.onnx": VALID})
    operation = factories.make_operation(version)
    assert reject_stranded() == 0
    Operation.objects.filter(pk=operation.pk).update(state="cancelled")
    assert reject_stranded() == 1
    version.refresh_from_db()
    assert (version.state, version.state_reason) == (
        "rejected",
        "The checks could not be finished: they were cancelled.",
    )


def test_the_second_run_after_a_death_gives_the_same_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    version = factories.make_version(factories.make_model(), {"resnet.onnx": VALID})
    operation = factories.make_operation(version)

    class Killed(BaseException):
        """What a dying worker looks like to the code: nothing after it runs."""

    from workers.checks import validation

    for victim in ("_check_format", "_check_runtime", "version_accept"):
        with monkeypatch.context() as patch:

            def die(*args: Any, **kwargs: Any) -> None:
                raise Killed

            patch.setattr(validation, victim, die)
            with pytest.raises(Killed):
                work_on(operation.pk)
        assert not work_on(operation.pk), "the lease still runs"
        Operation.objects.update(lease_until="2020-01-01T00:00:00Z")
    assert work_on(operation.pk)
    version.refresh_from_db()
    assert (version.state, version.number, version.model.versions.count()) == ("ready", 1, 1)
    assert not work_on(operation.pk)


def test_models_from_the_onnx_package_are_what_we_test_with() -> None:
    onnx.checker.check_model(models.linear())


@pytest.mark.parametrize("name", ["x\0", "a\nb", "\x1b[31m"])
def test_a_name_with_a_control_character_is_refused_at_once(name: str) -> None:
    model = models.linear()
    model.graph.input[0].name = name
    model.graph.node[0].input[0] = name
    outcome = validate({"model.onnx": model.SerializeToString()})
    assert outcome.version.state == "rejected"
    assert outcome.operation.attempts == 1
    assert "control character" in outcome.error


def test_what_a_file_says_about_itself_may_hold_anything() -> None:
    model = models.linear()
    model.producer_name = "pr\0ducer"
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "ba\0tch"
    outcome = validate({"model.onnx": model.SerializeToString()})
    assert outcome.version.state == "ready"
    assert Check.objects.get(version=outcome.version, kind="format").evidence["producer"] == "pr\ufffdducer"


def test_a_reason_may_hold_anything() -> None:
    model = models.linear(domains={"com.example": 1})
    model.graph.node[0].domain, model.graph.node[0].op_type = "com.example", "Fr\0b"
    outcome = validate({"model.onnx": model.SerializeToString()})
    assert outcome.version.state == "rejected"
    assert outcome.operation.attempts == 1
    assert "Fr\ufffdb" in outcome.error
    assert "Fr\ufffdb" in outcome.version.state_reason
