"""Conversions in a process of their own: whatever the file does to it, the caller gets a report or one sentence."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from conversion.errors import ConversionFailed
from conversion.order import Order, Step
from conversion.process import Limits, run
from conversion.settings import scrubbed_environment
from tests.conversion import models


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir()), "a conversion left its folder behind"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(models.network(), path)
    return path


def order(source: Path, **options: Any) -> Order:
    steps = () if source.suffix == ".pkl" else (Step.FP16,)
    return Order(str(source), str(source.parent / "made.onnx"), steps, **options)


def pickled(path: Path, function: Any, *arguments: Any) -> Path:
    class Planted:
        def __reduce__(self) -> Any:
            return function, arguments

    path.write_bytes(pickle.dumps(Planted()))
    return path


def test_the_file_appears_whole_with_its_report(network: Path) -> None:
    said: list[str] = []
    report = run(order(network), Limits(), said.append)
    made = network.parent / "made.onnx"
    onnx.checker.check_model(str(made))
    assert (report.verdict, report.target.name, report.target.size) == ("pass", "made.onnx", made.stat().st_size)
    assert said[0] == "Reading network.onnx"
    assert sorted(path.name for path in network.parent.iterdir()) == ["made.onnx", "network.onnx", "temporary"]


def test_a_file_that_answers_differently_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    onnx.save(models.large_sum(), path)
    wanted = order(path, batches=(200,))
    assert run(wanted, Limits(), lambda _: None).verdict == "fail"
    assert not (tmp_path / "made.onnx").exists()
    run(wanted, Limits(), lambda _: None, keep_failed=True)
    assert (tmp_path / "made.onnx").exists()


def test_refusals_come_as_their_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.network().SerializeToString()[:-40])
    with pytest.raises(ConversionFailed, match=r"^model\.onnx is cut or damaged: it is no complete ONNX file\.$"):
        run(order(path), Limits(), lambda _: None)


def test_a_missing_library_is_named_with_what_to_install(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, needs in (("numpy", "Converting needs numpy"), ("onnxruntime", "Half precision needs onnxruntime")):
        folder = tmp_path / f"without {module}"
        folder.mkdir()
        blocked = f"raise ModuleNotFoundError('No module named {module}', name='{module}')"
        (folder / f"{module}.py").write_text(blocked)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        with pytest.raises(ConversionFailed, match=rf"^{needs}: pip install 'flotilla\[convert,onnx\]'\.$"):
            run(order(network), Limits(), lambda _: None)


def test_a_process_that_dies_is_told_apart(tmp_path: Path) -> None:
    path = pickled(tmp_path / "model.pkl", os.abort)
    with pytest.raises(ConversionFailed, match=r"ended by SIGABRT at the step: Reading model\.pkl"):
        run(order(path, allow_code=True), Limits(), lambda _: None)
    path = pickled(tmp_path / "model.pkl", os._exit, 7)
    with pytest.raises(ConversionFailed, match="ended with status 7"):
        run(order(path, allow_code=True), Limits(), lambda _: None)


@pytest.mark.parametrize("said", [b"rubbish", b"[1]", b'{"report": {}}'])
def test_what_is_no_report_is_not_believed(tmp_path: Path, said: bytes) -> None:
    code = f"import os, sys; os.write(int(sys.argv[1]), {said!r} + bytes([10])); os._exit(0)"
    path = pickled(tmp_path / "model.pkl", exec, code)
    with pytest.raises(ConversionFailed, match=r"no report|no good report"):
        run(order(path, allow_code=True), Limits(), lambda _: None)


def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    import time

    path = pickled(tmp_path / "model.pkl", time.sleep, 1000)
    with pytest.raises(ConversionFailed, match="took longer than 2 seconds"):
        run(order(path, allow_code=True), Limits(seconds=2), lambda _: None)


def test_a_process_that_takes_too_much_is_refused_memory(tmp_path: Path) -> None:
    path = pickled(tmp_path / "model.pkl", bytearray, 2**31)
    with pytest.raises(ConversionFailed, match="needs more than 1024 MiB of memory"):
        run(order(path, allow_code=True), Limits(memory_bytes=2**30), lambda _: None)


def test_code_of_the_file_sees_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOTILLA_TOKEN", "flo_secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    seen = tmp_path / "seen"
    path = pickled(tmp_path / "model.pkl", os.system, f"env > {seen}; pwd >> {seen}")
    with pytest.raises(ConversionFailed):
        run(order(path, allow_code=True), Limits(), lambda _: None)
    text = seen.read_text()
    assert "secret" not in text
    assert f"HOME={tmp_path}/temporary/flotilla-convert-" in text
    assert text.splitlines()[-1].startswith(f"{tmp_path}/temporary/flotilla-convert-")


def test_only_what_libraries_need_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = scrubbed_environment("/folder")
    assert "AWS_SECRET_ACCESS_KEY" not in found
    assert (found["OMP_NUM_THREADS"], found["HOME"], found["TMPDIR"]) == ("1", "/folder", "/folder")


def test_it_ends_with_the_process_that_asked(tmp_path: Path) -> None:
    """The child writes its pid, then sleeps for good; the parent is killed."""
    ready = tmp_path / "pid"
    code = (
        f"import os, pathlib, time; part = pathlib.Path({str(ready)!r} + '.part'); part.write_text(str(os.getpid()))\n"
    )
    path = pickled(tmp_path / "model.pkl", exec, f"{code}part.rename({str(ready)!r}); time.sleep(1000)")
    script = (
        "import sys; from conversion.process import Limits, run; from conversion.order import Order\n"
        "run(Order(sys.argv[1], sys.argv[2], allow_code=True), Limits(), print)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(tmp_path / "made.onnx")],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        while not ready.exists():
            assert parent.poll() is None
            os.sched_yield()
        child = int(ready.read_text())
        ended = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(30)
        assert select.select([ended], [], [], 60)[0], "the conversion outlives who asked for it"
        os.close(ended)
    finally:
        parent.kill()
        parent.wait()


def test_where_nothing_can_be_written_it_is_said(network: Path) -> None:
    wanted = Order(str(network), str(network.parent / "gone" / "made.onnx"), (Step.FP16,))
    with pytest.raises(ConversionFailed, match="cannot be written: No such file or directory"):
        run(wanted, Limits(), lambda _: None)
