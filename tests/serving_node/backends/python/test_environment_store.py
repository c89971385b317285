"""Environments made from requirements, out of a folder of wheels that the test makes."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serving_node.backends.loader import Backends
from serving_node.backends.python.environment_store import BuildError, EnvironmentStore, PackageIndex, failure
from serving_node.backends.python.requirements import read_requirements
from serving_node.core.errors import InferenceError

from .conftest import Models
from .wheels import make_numpy, make_wheel

BODY = """
def execute(self, requests):
    import demo
    text = np.array([demo.WORD, sys.prefix], dtype=object)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def lines(house: Path) -> str:
    return "\n".join([make_numpy(house), make_wheel(house, "demo", "1.0", {"demo.py": "WORD = 'from the wheel'\n"})])


def store_of(folder: Path, house: Path, seconds: float = 60) -> EnvironmentStore:
    return EnvironmentStore(folder / "environments", PackageIndex(str(house)), seconds)


def test_one_is_built_once_however_many_ask(tmp_path: Path, house: Path, lines: str) -> None:
    requirements = read_requirements(lines)
    roots: list[Path] = []
    asking = [
        threading.Thread(target=lambda: roots.append(store_of(tmp_path, house).find_or_build(requirements)))
        for _ in range(3)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert len(roots) == 3 and len(set(roots)) == 1
    store = store_of(tmp_path, house)
    said = store.log_of(store.key(requirements)).read_text()
    assert said.count("Successfully installed demo-1.0 numpy-") == 1
    (house / "demo-1.0-py3-none-any.whl").unlink()
    assert store.find_or_build(requirements) == roots[0]
    python = roots[0] / "bin" / "python3"
    imported = subprocess.run([python, "-I", "-c", "import demo, numpy; print(demo.WORD)"], capture_output=True)
    assert imported.stdout == b"from the wheel\n"


def test_what_an_ended_node_left_is_built_anew(tmp_path: Path, house: Path, lines: str) -> None:
    store, requirements = store_of(tmp_path, house), read_requirements(lines)
    half = tmp_path / "environments" / store.key(requirements)
    half.mkdir(parents=True)
    (half / "rest").write_text("half of something")
    root = store.find_or_build(requirements)
    assert root == half and (root / "complete").exists() and not (root / "rest").exists()
    (root / "bin" / "python3").unlink()
    assert store.find_or_build(requirements) == root and (root / "bin" / "python3").exists()


def test_who_waits_for_another_waits_only_so_long(tmp_path: Path, house: Path, lines: str) -> None:
    store, requirements = store_of(tmp_path, house, 0.2), read_requirements(lines)
    (tmp_path / "environments").mkdir()
    lock = os.open(tmp_path / "environments" / f"{store.key(requirements)}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(BuildError, match="it was not ready within 0 seconds"):
            store.find_or_build(requirements)
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda house: (house / "demo-1.0-py3-none-any.whl").unlink(),
            "No matching distribution|satisfies the require",
        ),
        (lambda house: make_wheel(house, "demo", "1.0", {"demo.py": "WORD = 'another'\n"}), "DO NOT MATCH THE HASHES"),
    ],
)
def test_what_cannot_be_installed_is_told_and_leaves_nothing(
    tmp_path: Path,
    house: Path,
    lines: str,
    spoil: object,
    sentence: str,
) -> None:
    spoil(house)  # type: ignore[operator]
    store, requirements = store_of(tmp_path, house), read_requirements(lines)
    with pytest.raises(BuildError, match=sentence):
        store.find_or_build(requirements)
    assert not (tmp_path / "environments" / store.key(requirements) / "complete").exists()
    assert "ERROR:" in store.log_of(store.key(requirements)).read_text()


def test_an_index_that_cannot_be_reached(tmp_path: Path, lines: str) -> None:
    index = PackageIndex("http://user:hidden@127.0.0.1:1/simple")
    store = EnvironmentStore(tmp_path / "environments", index, 60)
    with pytest.raises(BuildError, match=r"^the package index cannot be reached; Could not find a version"):
        store.find_or_build(read_requirements(lines))
    assert "hidden" not in store.log_of(store.key(read_requirements(lines))).read_text()


def test_an_index_that_never_answers_is_left(tmp_path: Path, lines: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = PackageIndex(f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        store = EnvironmentStore(tmp_path / "environments", index, 1.5)
        with pytest.raises(BuildError, match="it was not ready within 2 seconds"):
            store.find_or_build(read_requirements(lines))
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _text(one)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_failures_are_one_sentence() -> None:
    assert failure(b"WARNING: x\nERROR: first.\nERROR: second\n", 1) == "first"
    assert failure(b"nothing\n", 9) == "pip ended with status 9"


async def test_a_model_runs_with_its_requirements(models: Models, tmp_path: Path, house: Path, lines: str) -> None:
    models.backends = Backends({"python": {"package-index": str(house), "environment-folder": str(tmp_path / "env")}})
    version = models.write(BODY)
    (version / "requirements.txt").write_text(lines)
    model = await models.load(BODY, datatype="TYPE_STRING")
    word, prefix = (text.decode() for text in await models.ask(model, [b""], dtype="BYTES").array())
    assert word == "from the wheel" and Path(prefix).parent == tmp_path / "env"
    assert "Successfully installed demo-1.0" in models.backends.build_log(version)
    (log,) = (tmp_path / "env").glob("*.log")
    log.write_bytes(b"x" * 5000 + b"\0\xffend")
    said = models.backends.build_log(version)
    assert len(said) == 4095 and said.endswith("x\ufffdend")
    (version / "requirements.txt").write_text("demo\n")
    with pytest.raises(InferenceError, match="No module named 'demo'"):
        await models.load("import demo\n" + BODY, name="m")


async def test_what_is_wrong_with_requirements_is_told(models: Models) -> None:
    version = models.write(BODY)
    (version / "requirements.txt").write_text("numpy==1.0 --hash=sha256:short\n")
    with pytest.raises(InferenceError, match=r"requirements.txt of model 'm': line 1 is not of the form"):
        await models.load(BODY)


async def test_an_environment_without_numpy_is_told(models: Models, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    path = tmp_path / "bare"
    extra = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'
    with pytest.raises(InferenceError, match="the environment of model 'm' has no numpy, which every worker needs"):
        await models.load(BODY, extra)
