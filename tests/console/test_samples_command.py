"""``flotilla samples`` against the real server."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from flotilla.cli import main
from tests.console.conftest import Cast, RunningConsole


def test_samples_from_a_shell(shared_cast: Cast, console: RunningConsole, tmp_path: Path) -> None:
    shared_cast.ready_version(content=b"one")
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
    }

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["samples", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    sample = {"name": "one", "inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [5]}]}
    file = tmp_path / "samples.json"
    file.write_text(json.dumps(sample))
    assert run("set", "finch", str(file)) == "finch: 1 samples\n"
    assert json.loads(run("get", "finch")) == [sample]
    assert json.loads(run("set", "finch", str(file), "--version", "latest", "--json"))["updated_by"] == "alice"
    assert run("clear", "finch") == "finch: no samples\n"
    assert json.loads(run("get", "finch")) == []
    assert json.loads(run("get", "finch", "--version", "1")) == [sample]
    file.write_text("{")
    assert "is no JSON" in run("set", "finch", str(file), status=2)
