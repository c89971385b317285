"""What a model's folder must hold before anything is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from serving_node.repository.local import PollError
from serving_node.repository.polled import PollRules, poll_folder, poll_uploaded

RULES = PollRules()
IO = 'input { name: "x" data_type: TYPE_FP32 dims: [1] } output { name: "y" data_type: TYPE_FP32 dims: [1] }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "m"
    (path / "1").mkdir(parents=True)
    (path / "1" / "model.onnx").write_bytes(b"weights")
    return path


def test_backend_comes_from_the_files(folder: Path) -> None:
    polled = poll_folder(folder, RULES, None)
    assert (polled.config.name, polled.config.backend, polled.folder.versions) == ("m", "onnxruntime", (1,))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense {", "nonsense"),
        ('name: "other"', "unexpected directory name 'm' for model 'other', directory name must equal model name"),
        ("max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
        ('backend: "onnxruntime" platform: "ensemble"', "ensemble"),
        ('backend: "onnxruntime" platform: "other"', "unexpected 'platform' and 'backend' pair"),
    ],
)
def test_bad_configs_are_refused_before_anything_is_loaded(folder: Path, text: str, sentence: str) -> None:
    (folder / "config.pbtxt").write_text(text)
    with pytest.raises(PollError, match=sentence):
        poll_folder(folder, RULES, None)


def test_config_that_is_no_text_and_folder_that_is_gone(folder: Path) -> None:
    (folder / "config.pbtxt").write_bytes(b"\xff\xfe")
    with pytest.raises(PollError, match="is not UTF-8 text"):
        poll_folder(folder, RULES, None)
    with pytest.raises(PollError, match="cannot be read: No such file"):
        poll_folder(folder / "nothing", RULES, None)


def test_tensors_are_looked_at_when_a_version_is_loaded(folder: Path) -> None:
    (folder / "config.pbtxt").write_text('input { name: "A" }')
    poll_folder(folder, PollRules(auto_complete=False), None)


def test_custom_config_goes_before_the_default(folder: Path) -> None:
    (folder / "config.pbtxt").write_text("max_batch_size: 1")
    assert poll_folder(folder, PollRules("fast"), None).config.max_batch_size == 1
    (folder / "configs").mkdir()
    (folder / "configs" / "fast.pbtxt").write_text("max_batch_size: 8")
    assert poll_folder(folder, PollRules("fast"), None).config.max_batch_size == 8
    assert poll_folder(folder, RULES, None).config.max_batch_size == 1


def test_fixed_part_leaves_out_what_can_change_in_place(folder: Path) -> None:
    def fixed(text: str) -> bytes:
        (folder / "config.pbtxt").write_text(text)
        return poll_folder(folder, RULES, None).fixed_part

    assert fixed("") == fixed("instance_group { count: 3 kind: KIND_CPU } version_policy { all {} }")
    assert fixed("") == fixed("max_batch_size: 0")
    assert fixed("") != fixed("max_batch_size: 2")


def test_override_is_newer_than_the_files(folder: Path) -> None:
    plain = poll_folder(folder, RULES, None)
    override = poll_folder(folder, RULES, '{"max_batch_size": 3, "backend": "identity"}')
    assert (override.config.backend, override.config.max_batch_size) == ("identity", 3)
    assert override.times.newest() > plain.times.newest()
    for text in ("", "{", '{"nonsense": 1}', '{"name": "other"}'):
        with pytest.raises(PollError):
            poll_folder(folder, RULES, text)


def test_uploads_are_older_than_anything() -> None:
    polled = poll_uploaded("m", {"3/model.onnx": b"x"}, RULES, '{"backend": "identity"}')
    assert polled.temporary is not None
    assert (polled.folder.versions, polled.times.newest()) == ((3,), 0)
    with pytest.raises(PollError, match="'config' must be specified"):
        poll_uploaded("m", {"3/model.onnx": b"x"}, RULES, None)


def agent(name: str, **parameters: str) -> str:
    rows = "".join(f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
    return f'model_repository_agents {{ agents {{ name: "{name}" {rows} }} }}'


def with_hash(path: str, value: str, kind: str = "MD5") -> str:
    return agent("checksum", **{f"{kind}:{path}": value})


def test_checksums_must_be_those_of_the_files(folder: Path) -> None:
    right = hashlib.md5(b"weights", usedforsecurity=False).hexdigest()
    for text in (with_hash("1/model.onnx", right), with_hash("1/model.onnx", right.upper())):
        (folder / "config.pbtxt").write_text(text)
        poll_folder(folder, RULES, None)
    for text, sentence in (
        (with_hash("1/model.onnx", "0" * 32), "Mismatched MD5 hash for file 1/model.onnx, expect: 0+, got: " + right),
        (with_hash("1/missing", right), "cannot read '1/missing'"),
        (with_hash("../other", right), "must stay within the model directory"),
        (with_hash("1/model.onnx", right, "CRC"), "unsupported hash type"),
        (agent("relocate"), "repository agent 'relocate' is not known here"),
    ):
        (folder / "config.pbtxt").write_text(text)
        with pytest.raises(PollError, match=sentence):
            poll_folder(folder, RULES, None)
