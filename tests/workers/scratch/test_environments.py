"""Python models with requirements: their packages are made outside of the sandbox and shown in it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.serving_node.backends.python.wheels import make_numpy, make_wheel
from tests.workers.scratch import models
from tests.workers.scratch.test_trial import recheck, row, validated, work
from workers.scratch.environments import PackagesMissing, environments_collect, environments_for
from workers.scratch.report import ScratchFailed

MODEL = models.PYTHON.replace(b"import numpy as np\n", b"import demo\nimport numpy as np\n")


@pytest.fixture(autouse=True)
def sandboxed(settings: Any, tmp_path: Path) -> None:
    settings.SANDBOX = True
    settings.SANDBOX_SECONDS = 100
    settings.DATA_DIR = tmp_path / "data"
    settings.STAGING_FREE_BYTES = 0
    settings.PACKAGE_INDEX = str(tmp_path / "wheels")


@pytest.fixture
def lines(tmp_path: Path) -> str:
    house = tmp_path / "wheels"
    return "\n".join([make_numpy(house), make_wheel(house, "demo", "1.0", {"demo.py": "WORD = 'wheel'\n"})])


def repository(folder: Path, requirements: str, config: str = 'backend: "python"') -> Path:
    """A repository with one model that has requirements."""
    version = folder / "repository" / "model" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(config)
    (version / "model.py").write_text("")
    (version / "requirements.txt").write_text(requirements)
    return folder / "repository"


@pytest.mark.django_db(transaction=True)
def test_a_model_is_tried_with_its_packages(lines: str, settings: Any, tmp_path: Path) -> None:
    version = validated({"model.py": MODEL, "requirements.txt": lines.encode()})
    assert (version.state, row(version, "signature").verdict) == ("ready", "pass"), version.state_reason
    settings.PACKAGE_INDEX = str(tmp_path / "nowhere")  # they are there already
    work(version)
    smoke = row(version, "smoke")
    assert (smoke.verdict, smoke.summary) == ("pass", "2 answers are as the config says."), (smoke.summary, smoke.log)
    settings.PACKAGE_INDEX = "none"
    smoke = recheck(version, "smoke")
    assert smoke.verdict == "error"
    assert smoke.summary.startswith("It needs the packages of its requirements.txt, and none are fetched here:")


def test_what_is_not_to_be_had_is_said(lines: str, tmp_path: Path, settings: Any) -> None:
    path = repository(tmp_path, f"{lines}\nmissing==1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(PackagesMissing, match=r"cannot be had: .*missing==1\.0.*FLOTILLA_PACKAGE_INDEX") as told:
        environments_for(path, lambda: False).__enter__()
    assert "missing" in told.value.log
    settings.PACKAGE_BYTES = 0
    with pytest.raises(PackagesMissing, match="more room than FLOTILLA_PACKAGE_BYTES"):
        environments_for(path, lambda: False).__enter__()
    with pytest.raises(ScratchFailed, match="stopped"):
        environments_for(path, lambda: True).__enter__()


def test_a_package_that_is_another_one_is_refused(lines: str, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "demo", "1.0", {"demo.py": "WORD = 'another'\n"})
    with pytest.raises(ScratchFailed, match="not the one that its hash names"):
        environments_for(repository(tmp_path, lines), lambda: False).__enter__()


@pytest.mark.parametrize(
    ("requirements", "config"),
    [("numpy\n", 'backend: "python"'), ("demo==1 --hash=sha256:x", 'backend: "onnxruntime"')],
    ids=["for_people", "no_python"],
)
def test_others_need_nothing(requirements: str, config: str, tmp_path: Path) -> None:
    with environments_for(repository(tmp_path, requirements, config), lambda: True) as found:
        assert found == ()


def test_what_nobody_asked_for_goes(settings: Any) -> None:
    now = datetime.now(UTC)
    folder = settings.DATA_DIR / "sandbox-environments"
    for days, name in enumerate(("today", "yesterday", "before")):
        (folder / name).mkdir(parents=True)
        (folder / name / "complete").write_text("x" * 1000)
        used = (now - timedelta(days=days)).timestamp()
        os.utime(folder / name / "complete", (used, used))
    (folder / "half").mkdir()
    assert environments_collect(now) == 0
    settings.PACKAGE_BYTES = 2500
    assert environments_collect(now) == 1
    assert environments_collect(now + timedelta(days=6.5)) == 2
    assert sorted(one.name for one in folder.iterdir() if one.is_dir()) == ["today"]
