"""Every example that runs without a GPU: its model is made, a node serves it, and its client is content."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving_node.server.processes import NodeProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_A_GPU = {"tensorrt"}
# Beside them lie pipelines for CI, which tests/flotilla/test_command_line.py holds against the command.
RUNNABLE = sorted({file.parent.name for file in EXAMPLES.glob("*/make_model.py")} - {*NEEDS_A_GPU})

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("examples")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that serves all examples from one repository."""
    folder = tmp_path_factory.mktemp("examples")
    for name in RUNNABLE:
        runpy.run_path(str(EXAMPLES / name / "make_model.py"), run_name="make_model")["make"](folder / "models")
    process = NodeProcess(folder / "log", f"--model-repository={folder / 'models'}")
    process.start()
    try:
        yield process.until_ready()
    finally:
        process.end()


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_client_gets_what_it_expects(name: str, node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name / "client.py"))["main"](f"127.0.0.1:{node.http}")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", [*RUNNABLE, *sorted(NEEDS_A_GPU)])
def test_it_says_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert "GPU" in text or name not in NEEDS_A_GPU
    assert f"examples/{name}/client.py" in text
    assert f"{name}/README.md" in (EXAMPLES / "README.md").read_text()
