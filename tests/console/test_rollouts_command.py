"""``flotilla rollouts`` against the real server."""

from __future__ import annotations

import pytest

from flotilla.sdk import Flotilla
from tests.console.conftest import Cast, RunningConsole, join_node
from tests.console.test_catalog_commands import Run, runner


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    return runner(console, shared_cast.token("bob"))


@pytest.fixture
def rollout(shared_cast: Cast, console: RunningConsole) -> str:
    """Return the id of a rollout that waits for its node."""
    shared_cast.environment("development", approvals=0)
    join_node(shared_cast, environment="development")
    shared_cast.ready_version()
    with Flotilla(console.url, shared_cast.token("bob"), project="wren") as client:
        routes = [{"version": 1, "config": 1, "role": "live", "weight": 100}]
        return str(client.deploy("finch", "development", routes)["rollout"])


def test_stages_say_what_a_rollout_waits_for(run: Run, rollout: str) -> None:
    found = run("rollouts", "stages", rollout, "--json")
    assert [(one["name"], one["state"]) for one in found["stages"]] == [("load", "current"), ("verify", "ahead")]
    head, load, verify = run("rollouts", "stages", rollout).splitlines()
    assert head.split() == ["STAGE", "STATE", "BEGUN", "TOOK", "GATE"]
    assert load.startswith("load") and "current" in load and found["stages"][0]["gate"] in load
    assert verify.split()[:2] == ["verify", "ahead"]
    assert run("rollouts", "pause", rollout, "-m", "Lunch.") == f"{rollout}: paused\n"
    assert "Paused by bob. Lunch." in run("rollouts", "stages", rollout).splitlines()[1]
    assert run("rollouts", "resume", rollout) == f"{rollout}: progressing\n"
    assert "Nothing was deployed before" in run("rollouts", "abort", rollout, status=11)
    assert "no such rollout" in run("rollouts", "stages", "0" * 8 + rollout[8:], status=1)


def test_one_says_what_it_changes(run: Run, rollout: str) -> None:
    found = run("rollouts", "show", rollout, "--json")
    assert (found["id"], found["kind"], found["spec_from"].get("routes", [])) == (rollout, "deploy", [])
    assert "version 1 config 1 live 100 %" in run("rollouts", "show", rollout)


def test_list_names_what_is_steered(run: Run, rollout: str) -> None:
    assert [row["id"] for row in run("rollouts", "list", "finch", "--json")] == [rollout]
    assert "bob" in run("rollouts", "list", "finch")
