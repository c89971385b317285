from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest

from tests.workers.checks import onnx_models as models
from workers.checks.onnx_file import OnnxSummary, read_onnx
from workers.checks.onnx_limits import MAX_IR_VERSION, MAX_OPSETS, RUNTIME, limit_problems, operator_warnings

onnxruntime.set_default_logger_severity(4)
onnxruntime.disable_telemetry_events()


def runtime_loads(model: onnx.ModelProto) -> bool:
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def summary_of(model: onnx.ModelProto, folder: Path) -> OnnxSummary:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return read_onnx(path, "model.onnx")


def test_the_table_is_about_the_installed_runtime() -> None:
    assert "ONNX Runtime " + ".".join(onnxruntime.__version__.split(".")[:2]) == RUNTIME


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("domain", sorted(MAX_OPSETS))
def test_opsets_as_in_the_installed_runtime(tmp_path: Path, domain: str, beyond: int) -> None:
    version = MAX_OPSETS[domain] + beyond
    model = models.linear(opset=version) if domain == "" else models.linear(domains={domain: version})
    assert runtime_loads(model) is (beyond == 0)
    assert bool(list(limit_problems(summary_of(model, tmp_path)))) is (beyond == 1)


@pytest.mark.parametrize("beyond", [0, 1])
def test_ir_version_as_in_the_installed_runtime(tmp_path: Path, beyond: int) -> None:
    model = models.linear(ir_version=MAX_IR_VERSION + beyond)
    assert runtime_loads(model) is (beyond == 0)
    assert bool(list(limit_problems(summary_of(model, tmp_path)))) is (beyond == 1)


def test_the_sentence_names_what_was_found_and_what_is_possible(tmp_path: Path) -> None:
    [problem] = limit_problems(summary_of(models.linear(opset=99), tmp_path))
    assert problem == f"The file uses opset 99 of ai.onnx; {RUNTIME} loads up to opset {MAX_OPSETS['']}."


def test_operators_of_foreign_domains_need_a_library_unless_the_file_defines_them(tmp_path: Path) -> None:
    [problem] = limit_problems(summary_of(models.custom_operator(local=False), tmp_path))
    assert "acme.ops (Double)" in problem
    assert not runtime_loads(models.custom_operator(local=False))
    assert not list(limit_problems(summary_of(models.custom_operator(local=True), tmp_path)))
    assert runtime_loads(models.custom_operator(local=True))


def test_unknown_standard_operators_are_warned_about(tmp_path: Path) -> None:
    model = models.linear()
    model.graph.node[1].op_type = "AddQuickly"
    [warning] = operator_warnings(summary_of(model, tmp_path))
    assert "AddQuickly" in warning
    assert not list(operator_warnings(summary_of(models.linear(), tmp_path)))
