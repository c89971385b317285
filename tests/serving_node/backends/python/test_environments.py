"""Interpreters of a model's own, and what workers may see of the node's environment."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from serving_node.backends.python.environment_store import EnvironmentStore, PackageIndex
from serving_node.backends.python.environments import Environments
from serving_node.backends.python.settings import python_options, worker_environment
from serving_node.contract.model_config import parse_pbtxt
from serving_node.contract.proto.model_config_pb2 import ModelConfig
from serving_node.core.errors import InferenceError

from .conftest import Models

DEFAULT = Path(sys.executable)


def environments(folder: Path) -> Environments:
    return Environments(EnvironmentStore(folder / "built", PackageIndex(), 60))


def config_of(path: str) -> ModelConfig:
    return parse_pbtxt(f'name: "m" parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}')


def make_environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to(DEFAULT)
    return folder


def test_without_one_the_nodes_interpreter_runs_models(tmp_path: Path) -> None:
    assert environments(tmp_path).interpreter(parse_pbtxt('name: "m"'), tmp_path / "1", DEFAULT).path == DEFAULT


def test_a_folder_beside_the_model(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    found = environments(tmp_path).interpreter(config_of("$$TRITON_MODEL_DIRECTORY/env"), tmp_path / "1", DEFAULT)
    assert found.path == tmp_path / "env" / "bin" / "python3"
    assert found.variables["LD_LIBRARY_PATH"] == str(tmp_path / "env" / "lib")
    found.close()
    assert found.path.exists()


def test_a_project_of_uvs(tmp_path: Path) -> None:
    make_environment(tmp_path / "project" / ".venv")
    found = environments(tmp_path).interpreter(config_of(str(tmp_path / "project")), tmp_path / "1", DEFAULT)
    assert found.path == tmp_path / "project" / ".venv" / "bin" / "python3"


def test_an_archive_is_unpacked_and_removed_again(tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "env", ".")
    found = environments(tmp_path).interpreter(config_of(str(tmp_path / "env.tar.gz")), tmp_path / "1", DEFAULT)
    assert found.path.exists() and found.folder is not None and tmp_path not in found.path.parents
    found.close()
    assert not found.folder and not found.path.exists()


@pytest.mark.parametrize("name", ["missing", "empty", "broken.tar.gz"])
def test_what_is_no_environment_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.tar.gz").write_bytes(b"nothing")
    with pytest.raises(InferenceError, match=r"execution environment .* of model 'm' cannot be used"):
        environments(tmp_path).interpreter(config_of(str(tmp_path / name)), tmp_path / "1", DEFAULT)


async def test_a_model_runs_in_its_environment(models: Models) -> None:
    body = """
    def execute(self, requests):
        text = np.array([sys.executable, os.environ["VIRTUAL_ENV"]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])]
    """
    path = sys.prefix
    extra = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{path}" }} }}'
    model = await models.load(body, extra, datatype="TYPE_STRING")
    executable, environment = (text.decode() for text in await models.ask(model, [b""], dtype="BYTES").array())
    assert executable.startswith(path) and environment == path


def test_variables_pass_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "OTHER_TOKEN", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "x")
    options = python_options({"pass-environment": "TOKEN, NOT_SET"})
    environment = worker_environment(options.pass_environment, "/somewhere")
    assert environment["TOKEN"] == environment["CUDA_VISIBLE_DEVICES"] == "x" and environment["TMPDIR"] == "/somewhere"
    assert "OTHER_TOKEN" not in environment and "NOT_SET" not in environment


def test_options() -> None:
    given = {"shm-default-byte-size": "1048576", "shm-growth-byte-size": "1", "stub-timeout-seconds": "5", "new": "x"}
    assert python_options(given).start_seconds == 5
    with pytest.raises(InferenceError, match="option 'stub-timeout-seconds' must be a number, got 'soon'"):
        python_options({"stub-timeout-seconds": "soon"})
