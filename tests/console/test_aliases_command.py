"""``flotilla alias`` against the real server."""

from __future__ import annotations

import json

from click.testing import CliRunner

from flotilla.cli import main
from tests.console.conftest import Cast, RunningConsole


def test_aliases_from_a_shell(shared_cast: Cast, console: RunningConsole) -> None:
    shared_cast.ready_version(content=b"one")
    shared_cast.ready_version(content=b"two")
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
    }

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["alias", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    assert "champion points at finch v1." in run("set", "finch", "champion", "1", "--protect", "-m", "first")
    assert json.loads(run("set", "finch", "champion", "latest", "--json"))["version"] == 2
    listed = run("list", "finch")
    assert "protected" in listed and "follows" in listed
    assert "cannot be set" in run("set", "finch", "latest", "1", status=1)
    assert run("delete", "finch", "champion") == "champion is deleted.\n"
    assert [row["name"] for row in json.loads(run("list", "finch", "--json"))] == ["latest"]
