"""``flotilla keys`` against the real server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from tests.console.conftest import Cast, RunningConsole

pytestmark = pytest.mark.django_db(transaction=True)


def test_make_renew_and_revoke(shared_cast: Cast, console: RunningConsole) -> None:
    environment = {"FLOTILLA_URL": console.url, "FLOTILLA_TOKEN": shared_cast.token("bob")}

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["keys", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    def works(token: str) -> bool:
        with console.client(token) as client:
            return client.get("/api/v1/me/").status_code == 200

    options = ("--scope", "read", "--only-project", "wren", "--days", "30", "--from", "127.0.0.0/8")
    first = run("create", "ci", *options).strip()
    beginning = "_".join(first.split("_")[:2])
    assert works(first) and beginning in run("list")
    changed = json.loads(run("change", "ci", "--name", "build", "--days", "5", "--from-anywhere", "--json"))
    assert (changed["name"], changed["allowed_networks"]) == ("build", [])
    assert works(first)
    run("change", "build", "--from", "10.0.0.0/8")
    assert not works(first)
    run("change", "build", "--name", "ci", "--from", "127.0.0.0/8")
    assert works(first)
    assert "Say what to change" in run("change", "ci", status=2)
    second = json.loads(run("rotate", beginning, "--overlap-hours", "1", "--json"))
    assert works(first) and works(second["token"])
    assert second["allowed_networks"] == ["127.0.0.0/8"] and second["project"] == "wren"
    third = run("rotate", "ci", "--overlap-hours", "0").strip()
    assert [works(first), works(second["token"]), works(third)] == [False, False, True]
    run("revoke", "ci")
    assert not works(third) and "revoked" in run("list")
    assert "There is no API key" in run("revoke", "nothing", status=1)
