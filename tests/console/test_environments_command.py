"""``flotilla environments``, and ``flotilla config revert|copy``, against the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from tests.console.conftest import Cast, RunningConsole

Run = Callable[..., Any]


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    shared_cast.environment("production", approvals=1)
    shared_cast.ready_version("finch")
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
    }

    def call(*arguments: str, status: int = 0) -> Any:
        result = CliRunner().invoke(main, [*arguments], env=environment)
        assert result.exit_code == status, result.output
        return json.loads(result.output) if "--json" in arguments and not status else result.output

    return call


def test_environments_and_fleets_are_made_changed_and_deleted(run: Run) -> None:
    made = run("environments", "create", "qa", "--title", "Quality", "--approvals", "0", "--json")
    assert (made["slug"], made["name"], made["requires_approval"]) == ("qa", "Quality", False)
    assert run("fleets", "create", "lab", "qa", "--label", "zone=a", "--label", "gpu=yes") == "lab: gpu=yes,zone=a\n"
    assert run("fleets", "change", "lab", "--title", "Lab", "--json")["selector"] == {"zone": "a", "gpu": "yes"}
    assert run("fleets", "change", "lab", "--label", "zone=b") == "lab: zone=b\n"
    assert "Say what to change" in run("fleets", "change", "lab", status=2)
    assert [one["slug"] for one in run("fleets", "list", "--json") if one["environment"] == "qa"] == ["lab"]
    assert "zone=b" in run("fleets", "list") and "Lab" in run("fleets", "list")
    assert run("fleets", "delete", "lab", "--yes") == "lab is deleted.\n"
    assert "qa is deleted" in run("environments", "delete", "qa", "--yes")
    assert "not_found" in run("fleets", "create", "lab", "qa", status=1)


def test_a_request_is_read_before_anybody_decides(run: Run) -> None:
    run("deploy", "finch", "-v", "1", "-f", "production", "-m", "For the fair", "--no-wait")
    (request,) = run("approvals", "--json")
    said = run("approvals", request["id"])
    assert "“For the fair”" in said and f"plan {request['plan_digest']}" in said
    assert "before: nothing" in said and "config 1, the first here" in said
    assert "no verified signature" in said and "unmet" in said and said.splitlines()[-1] == "open"
    assert run("approvals", request["id"], "--json")["versions"][0]["number"] == 1


def test_rules_are_set_and_shown(run: Run) -> None:
    rules = ("--approvals", "2", "--approver-role", "operator", "--require", "smoke:warn", "--wait", "2h")
    weekend = "weekend: 0 18 * * FRI for 62h Europe/Berlin"
    changed = run("environments", "set", "production", *rules, "--deny", weekend, "--admins-bypass", "--json")
    assert (changed["required_approvals"], changed["wait_minutes"], changed["admins_bypass"]) == (2, 120, True)
    assert changed["required_checks"] == [{"kind": "smoke", "allow_warn": True}]
    assert changed["windows"] == [
        {
            "name": "weekend",
            "effect": "deny",
            "cron": "0 18 * * FRI",
            "duration_minutes": 3720,
            "time_zone": "Europe/Berlin",
        }
    ]
    text = run("environments", "show", "production", "--at", "2026-06-06T12:00:00Z")
    assert "approvals: 2 by role operator" in text
    assert "Closed by weekend; opens at 2026-06-08T06:00:00Z." in text
    assert "smoke:warn" in run("environments", "list")
    run("environments", "set", "production", "--no-windows", "--no-checks", "--wait", "0m")
    assert "Changes may start now." in run("environments", "show", "production")


def test_mistakes_are_told(run: Run) -> None:
    assert "62h" in run("environments", "set", "production", "--deny", "friday evening", status=2)
    assert "Name what to change" in run("environments", "set", "production", status=2)
    assert "windows[0].cron" in run("environments", "set", "production", "--deny", "99 * * * * for 1h", status=1)


def test_a_request_is_commented_and_its_rules_are_bypassed(run: Run, shared_cast: Cast) -> None:
    run("environments", "set", "production", "--admins-bypass", "--require", "smoke")
    asked = run("deploy", "finch", "--fleet", "production", "--version", "1", "--no-wait", "--json")
    approval = asked["approval"]
    assert "is open" in run("comment", approval, "-m", "Soon.")
    text = run("bypass", approval, "--reason", "The site is down.", "--yes")
    assert "has no check “Smoke inference” yet" in text
    assert "is applied" in text


def test_an_environment_is_deleted(run: Run, shared_cast: Cast) -> None:
    shared_cast.environment("spare", approvals=0)
    assert "spare is deleted" in run("environments", "delete", "spare", "--yes")
    assert "spare" not in run("environments", "list")


def test_configs_go_back_and_are_copied(run: Run, shared_cast: Cast, tmp_path: Any) -> None:
    shared_cast.ready_version("wagtail", b"another")
    file = tmp_path / "config.pbtxt"
    file.write_text(run("config", "get", "finch").replace("max_batch_size: 8", "max_batch_size: 32"))
    run("config", "apply", "finch", str(file))
    made = run("config", "revert", "finch", "1", "--json")
    assert (made["number"], made["comment"]) == (3, "Back to config 1.")
    copied = run("config", "copy", "finch", "wagtail", "--number", "2", "--json")
    assert (copied["model"], copied["body"]["max_batch_size"]) == ("wagtail", 32)
