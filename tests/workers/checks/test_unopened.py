"""Versions that nothing here opens: what is told without running them, and the project's word on code."""

from __future__ import annotations

from typing import Any

import pytest

from registry.models import AuditEvent, Check, CodeFormats, ModelVersion, Project
from registry.selectors.configs import config_latest
from registry.services.accounts import membership_set
from registry.services.code import project_code_formats
from serving_node.contract.model_config import parse_pbtxt
from tests.workers import factories
from workers.checks.unopened import signature_in
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = b"""
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_STRING dims: [ -1 ] }
"""
PYTHON = b"class TritonPythonModel:\n    pass\n"
ZIP = b"PK\x03\x04 rest of an archive"


def validate(files: dict[str, bytes], model: Any = None) -> ModelVersion:
    version = factories.make_version(model or factories.make_model(), files)
    work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    return version


@pytest.mark.parametrize(
    ("name", "content", "config", "format", "backend", "code"),
    [
        ("model.py", PYTHON, CONFIG, "python", "python", "Python source"),
        ("model.pt2", ZIP, CONFIG, "pt2", "pytorch", "PyTorch package"),
        ("model.pt", ZIP, CONFIG, "torchscript", "pytorch", "TorchScript"),
        ("model.xml", b"<?xml version='1.0'?><net/>", CONFIG, "openvino", "openvino", ""),
        ("model.plan", b"ptrt....", CONFIG, "tensorrt", "tensorrt", ""),
        ("anything.bin", b"1", CONFIG + b'backend: "of_somebody"', "of_somebody", "of_somebody", ""),
    ],
)
def test_a_version_with_a_config_becomes_ready(
    name: str, content: bytes, config: bytes, format: str, backend: str, code: str
) -> None:
    version = validate({name: content, "config.pbtxt": config})
    assert (version.state, version.format) == ("ready", format), version.state_reason
    assert version.signature is not None
    assert [(one["name"], one["datatype"], one["shape"]) for one in version.signature["inputs"]] == [
        ("x", "FP32", [-1, 3])
    ]
    assert [(one["datatype"], one["shape"]) for one in version.signature["outputs"]] == [("BYTES", [-1, -1])]
    stored = config_latest(version.model)
    assert stored is not None and (stored.body["backend"], stored.body["max_batch_size"]) == (backend, 4)
    assert [file["path"] for file in version.code_files] == ([name] if code else [])
    assert code in str(version.code_files)
    assert (version.code_permitted_at is not None) == bool(code)
    assert version.code_permitted_by == (version.author if code else None)


@pytest.mark.parametrize(
    ("files", "format", "warned"),
    [
        ({"model.pt": ZIP}, "torchscript", True),
        ({"model.pt2": ZIP}, "pt2", False),
        ({"model.py": PYTHON, "model.safetensors": b"weights"}, "pytorch", False),
        ({"model.py": PYTHON, "model.pt": ZIP}, "pytorch", False),
    ],
)
def test_files_of_pytorch_are_found_under_each_name_and_torchscript_is_warned_of(
    files: dict[str, bytes], format: str, warned: bool
) -> None:
    version = validate(files | {"config.pbtxt": CONFIG + b'backend: "pytorch"'})
    assert (version.state, version.format) == ("ready", format), version.state_reason
    row = Check.objects.get(version=version, kind="format")
    assert row.verdict == ("warn" if warned else "pass")
    assert ("PyTorch has deprecated TorchScript" in row.summary) is warned


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"model.py": PYTHON}, "Inputs and outputs are not known: Nothing is run in a sandbox here"),
        ({"model.py": PYTHON, "config.pbtxt": b"max_batch_size: 1"}, "Inputs and outputs are not known"),
        ({"model.py": PYTHON, "config.pbtxt": b"max_batch_size {"}, "config.pbtxt cannot be read"),
        ({"model.pt": b"GGUF....", "config.pbtxt": CONFIG}, "model.pt is not such a file: it is a GGUF file"),
        ({"model.xml": b"\x80\x04", "config.pbtxt": CONFIG}, "model.xml is not such a file: it is a Python pickle"),
        ({"a.txt": b"a", "config.pbtxt": CONFIG + b'backend: "python"'}, "The backend python looks for model.py"),
        ({"model.py": PYTHON, "config.pbtxt": b"input { name: 'x' } output { name: 'y' }"}, "An input or output"),
        ({"a.txt": b"a", "b.txt": b"b"}, "None of the files is an ONNX model, nor has one of the names model.pt2"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(files: dict[str, bytes], sentence: str) -> None:
    version = validate(files)
    assert version.state == "rejected"
    assert version.state_reason.startswith(sentence)
    assert Check.objects.filter(version=version, verdict__in=["fail", "error"]).exists()


def test_a_later_version_takes_inputs_and_outputs_from_the_config_of_the_model() -> None:
    first = validate({"model.py": PYTHON, "config.pbtxt": CONFIG})
    second = validate({"model.py": PYTHON + b"# more\n"}, first.model)
    assert (second.state, second.number, second.signature) == ("ready", 2, first.signature)


def test_a_project_that_forbids_code_takes_data_only() -> None:
    model = factories.make_model()
    Project.objects.update(code_formats=CodeFormats.FORBID)
    refused = validate({"model.py": PYTHON, "config.pbtxt": CONFIG}, model)
    assert refused.state == "rejected"
    assert refused.state_reason == (
        "Project “default” does not allow code in versions, and this one has: model.py (Python source)."
    )
    assert Check.objects.get(version=refused, kind="code").verdict == "fail"
    assert validate({"model.xml": b"<net/>", "config.pbtxt": CONFIG}, model).state == "ready"


def test_only_administrators_set_it_and_it_is_audited() -> None:
    from registry.domain.actors import Actor
    from registry.errors import PermissionDenied, ValidationFailed

    model = factories.make_model()
    admin = Actor.person(model.owner)
    other = factories.make_user()
    membership_set(project=model.project, user=other, role="operator", actor=admin)
    with pytest.raises(PermissionDenied):
        project_code_formats(project=model.project, code_formats="forbid", actor=Actor.person(other))
    with pytest.raises(ValidationFailed):
        project_code_formats(project=model.project, code_formats="sometimes", actor=admin)
    changed = project_code_formats(project=model.project, code_formats="forbid", actor=admin)
    assert changed.code_formats == "forbid"
    project_code_formats(project=model.project, code_formats="forbid", actor=admin)
    [event] = AuditEvent.objects.filter(action="project.code_formats")
    assert (event.before, event.after) == ({"code_formats": "allow"}, {"code_formats": "forbid"})


def test_without_batches_shapes_are_as_declared() -> None:
    config = parse_pbtxt('input { name: "x" data_type: TYPE_BF16 dims: [ 2, -1 ] }')
    signature = signature_in(config)
    assert (signature.inputs[0].datatype, signature.inputs[0].shape) == ("BF16", (2, -1))
