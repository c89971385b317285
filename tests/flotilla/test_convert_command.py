"""``flotilla convert`` as people run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from flotilla.cli import main
from flotilla.sdk import Flotilla
from tests.conversion import models


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(models.network(), path)
    return path


def convert(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_it_converts_and_tells_how_far_the_answers_are(network: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "half.onnx", tmp_path / "report.json"
    content = network.read_bytes()
    done = convert(network, target, "--to", "simplified", "--to", "fp16", "--report", report)
    assert done.exit_code == 0, done.output
    assert "Reading network.onnx ..." in done.stderr
    assert "Verdict: pass, over random (seed 0) inputs of 1, 7 rows" in done.stdout
    document = json.loads(report.read_text())
    assert (document["verdict"], document["steps"]) == ("pass", ["simplified", "fp16"])
    assert document["target"]["name"] == "half.onnx"
    assert network.read_bytes() == content
    assert target.exists()


def test_json_holds_the_report_and_nothing_else(network: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.ones((3, 8), np.float32))
    done = convert(network, tmp_path / "o.onnx", "--to", "fp16", "--inputs", samples, "--json", "--tolerance", "0.5")
    document = json.loads(done.stdout)
    assert document["report"]["samples"] == {"rows": [3], "seed": None}
    assert document["report"]["tolerance"] == {"relative": 0.5, "absolute": 1e-3}
    assert document["version"] is None
    assert done.stderr == ""


def test_answers_that_differ_leave_a_report_and_no_file(network: Path, tmp_path: Path) -> None:
    target, report = tmp_path / "half.onnx", tmp_path / "report.json"
    strict = ("--tolerance", "0", "--absolute-tolerance", "1e-9")
    done = convert(network, target, "--to", "fp16", *strict, "--report", report, "--push", "finch")
    assert done.exit_code == 3
    assert "differ too much" in done.stderr
    assert json.loads(report.read_text())["verdict"] == "fail"
    assert not target.exists()
    assert convert(network, target, "--to", "fp16", *strict, "--keep").exit_code == 3
    assert target.exists()


def test_nothing_that_exists_is_replaced_unasked(network: Path, tmp_path: Path) -> None:
    target = tmp_path / "half.onnx"
    target.write_text("precious")
    assert "exists; name a new file" in convert(network, target, "--to", "fp16").output
    assert target.read_text() == "precious"
    assert convert(network, target, "--to", "fp16", "--force").exit_code == 0
    content = network.read_bytes()
    link = tmp_path / "link.onnx"
    link.symlink_to(network)
    for arguments in ((network, network), (network, link), (network, tmp_path / "n.onnx", "--report", network)):
        done = convert(*arguments, "--to", "fp16", "--force")
        assert (done.exit_code, "is the file to convert" in done.output) == (2, True)
    assert network.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["IN", "out.onnx"], "Error: network.onnx is ONNX already"),
        (["IN", "out.onnx", "--to", "fp16", "--integers", "9"], "--integers is LOW:HIGH"),
        (["IN", "out.onnx", "--to", "fp16", "--integers", "9:1"], "--integers is LOW:HIGH"),
        (["IN", "gone/out.onnx", "--to", "fp16"], "There is no folder"),
        (["IN", "out.onnx", "--to", "fp16", "--report", "out.onnx"], "name the same file"),
        (["IN", "out.onnx", "--to", "fp16", "--inputs", "IN"], "is no .npz file of plain arrays"),
        (["gone.onnx", "out.onnx"], "does not exist"),
    ],
)
def test_bad_arguments_get_one_sentence(
    network: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(network.parent)
    done = convert(*(network if one == "IN" else one for one in arguments))
    assert done.exit_code in (1, 2)
    assert sentence in done.output


def test_push_uploads_the_file_with_its_report(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[tuple[str, Any, Any]] = []

    def push(self: Flotilla, model: str, files: Any, *, conversion: Any) -> dict[str, Any]:
        pushed.append((model, files, conversion))
        return {"number": 4}

    monkeypatch.setattr(Flotilla, "push", push)
    target = tmp_path / "half.onnx"
    done = convert(network, target, "--to", "fp16", "--push", "finch")
    assert done.exit_code == 0, done.output
    assert "finch version 4 is ready." in done.stdout
    ((model, files, conversion),) = pushed
    assert (model, files) == ("finch", {"model.onnx": target})
    assert conversion["verdict"] == "pass"
