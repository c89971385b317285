"""``flotilla`` as CI and people use it, against a Flotilla that really runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flotilla.sdk import Flotilla
from tests.e2e.onnx_models import write_mlp
from tests.e2e.running import RunningFlotilla, clean_environment, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def people(flotilla: RunningFlotilla) -> dict[str, Any]:
    done = subprocess.run(
        [*flotilla.command, "manage", "--data-dir", str(flotilla.data_dir), "demo_accounts"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture
def start(flotilla: RunningFlotilla, people: dict[str, Any], tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def begin(who: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        environment = clean_environment(
            FLOTILLA_URL=flotilla.url,
            FLOTILLA_TOKEN=people[who]["token"],
            FLOTILLA_CONFIG_DIR=str(tmp_path / "config"),
            TMPDIR=str(tmp_path),
            **more,
        )
        return subprocess.Popen(
            [sys.executable, "-m", "flotilla.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    return begin


@pytest.fixture
def run(start: Callable[..., subprocess.Popen[str]]) -> Run:
    """Run a command; with ``--json`` return its document, else what it printed."""

    def call(who: str, *arguments: str, status: int = 0, **more: str) -> Any:
        process = start(who, *arguments, **more)
        out, err = process.communicate(timeout=180)
        assert process.returncode == status, f"{arguments}\n{out}\n{err}"
        return json.loads(out) if "--json" in arguments else out + err

    return call


@pytest.fixture(scope="module")
def pushed(flotilla: RunningFlotilla, people: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with version 1, served on development by ``flotilla push``; the name of the model."""
    file = write_mlp(tmp_path_factory.mktemp("pushed") / "model.onnx", seed=11)
    command = ["push", "by-ci", str(file), "--git-sha", "0" * 40, "--deploy", "development", "--alias", "champion"]
    done = subprocess.run(
        [sys.executable, "-m", "flotilla.cli", *command, "--json-lines", "--timeout", "120"],
        capture_output=True,
        text=True,
        timeout=180,
        env=clean_environment(FLOTILLA_URL=flotilla.url, FLOTILLA_TOKEN=people["author"]["token"]),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *steps, last = [json.loads(line) for line in done.stdout.splitlines()]
    ended = [step["stage"] for step in steps if step["state"] == "done"]
    assert ended == ["upload", "checks", "alias", "rollout"]
    assert (last["event"], last["verdict"], last["exit_status"]) == ("result", "succeeded", 0)
    assert last["version"]["number"] == 1 and last["alias"]["version"] == 1
    assert last["rollout"]["phase"] == "succeeded" and last["approval"] is None
    assert all(check["verdict"] in {"pass", "warn"} for check in last["checks"])
    assert last["links"]["version"].startswith(flotilla.url)
    return "by-ci"


def test_a_push_that_fails_its_checks_ends_with_their_status(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "model.onnx"
    bad.write_text("this is not a model\n" * 50)
    found = run("author", "push", "contrary-ci", str(bad), "--json", status=4)
    assert found["verdict"] == "checks_failed" and found["version"]["state"] == "rejected"
    assert "fail" in {check["verdict"] for check in found["checks"]}
    said = run("author", "push", "contrary-ci", str(bad), status=4)
    assert "! checks" in said and f"Error: {found['message']}" in said and "\r" not in said


def test_a_promotion_waits_for_the_approval_of_somebody_else(
    run: Run, start: Callable[..., subprocess.Popen[str]], pushed: str
) -> None:
    process = start("author", "promote", pushed, "--yes", "--json", "--timeout", "120", "-m", "release 1")

    def waiting() -> list[Any]:
        return [row for row in run("approver", "approvals", "--json") if row["model"] == pushed]

    [request] = wait_until(waiting, "the request is open")
    assert request["comment"] == "release 1"
    refused = run("author", "approve", request["id"], "--yes", status=10)
    assert "somebody else must approve" in refused and "[permission_denied, request " in refused
    assert "name what you have read with --plan" in run("approver", "approve", request["id"], status=2)
    answer = run("approver", "approve", request["id"], "--plan", request["plan_digest"], "--json")
    assert answer["state"] == "applied"
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["approval"]["state"] == "applied" and found["rollout"]["phase"] == "succeeded"
    assert "1 approval needed" in err
    assert "serves this already" in run("author", "promote", pushed, "--yes")


def test_a_promotion_that_is_rejected_ends_with_its_own_status(
    run: Run, start: Callable[..., subprocess.Popen[str]], pushed: str, tmp_path: Path
) -> None:
    run("author", "push", pushed, str(write_mlp(tmp_path / "model.onnx", seed=12)))
    process = start("author", "promote", pushed, "--version", "2", "--yes", "--json", "--timeout", "120")

    def waiting() -> list[Any]:
        return [row for row in run("approver", "approvals", "--json") if row["model"] == pushed]

    [request] = wait_until(waiting, "the request is open")
    run("approver", "reject", request["id"], "--yes", "-m", "Not today.")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    assert json.loads(out)["verdict"] == "rejected" and json.loads(out)["message"] == "Not today."
    timed_out = run("author", "promote", pushed, "--version", "2", "--yes", "--timeout", "1", status=8)
    assert "Not finished within 1 s" in timed_out


def test_status_of_all_and_of_one_and_as_it_changes(run: Run, pushed: str) -> None:
    assert pushed in run("author", "status")
    one = run("author", "status", pushed, "--fleet", "development")
    assert f"{pushed} on development: synced, healthy" in one and "NODE" in one
    watched = run("author", "status", pushed, "--watch", "--timeout", "2", "--json")
    assert [row["model"] for row in watched] == [pushed] * len(watched)


def test_operations_are_listed_shown_and_waited_for(run: Run, pushed: str) -> None:
    rows = run("author", "operations", "list", "--kind", "validate_version", "--json")
    assert {row["kind"] for row in rows} == {"validate_version"}
    done = next(row for row in rows if row["state"] == "succeeded")
    assert run("author", "operations", "wait", done["id"], "--json")["operation"]["id"] == done["id"]
    assert "validate_version succeeded" in run("author", "operations", "show", done["id"])
    assert "[invalid_transition" in run("author", "operations", "cancel", done["id"], status=11)


def test_configs_are_compared_and_applied_once(run: Run, pushed: str, tmp_path: Path) -> None:
    file = tmp_path / "config.pbtxt"
    file.write_text("max_batch_size: 4\ndynamic_batching { }\n")
    assert "+max_batch_size: 4" in run("author", "config", "diff", pushed, "--file", str(file), status=3)
    first = run("author", "config", "apply", pushed, str(file), "-m", "smaller", "--json")
    assert run("author", "config", "apply", pushed, str(file), "--json")["number"] == first["number"]
    assert run("author", "config", "diff", pushed, "--file", str(file)) == "They are equal.\n"
    assert "smaller" in run("author", "config", "list", pushed)
    assert "max_batch_size: 4" in run("author", "config", "get", pushed)
    assert run("author", "config", "get", pushed, "--as", "source").startswith("max_batch_size: 4\ndynamic")
    file.write_text("max_batch_size: -1\n")
    assert "max_batch_size" in run("author", "config", "check", pushed, str(file), status=1)


def editor(tmp_path: Path, script: str) -> str:
    """Return an $EDITOR that runs a line of Python with ``text`` (in and out)."""
    program = tmp_path / "editor.py"
    head = "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\ntext = path.read_text()\n"
    program.write_text(f"{head}{script}\npath.write_text(text)\n")
    return f"{sys.executable} {program}"


def test_a_config_is_edited_and_nothing_typed_is_lost(
    run: Run, pushed: str, people: dict[str, Any], flotilla: RunningFlotilla, tmp_path: Path
) -> None:
    assert "Nothing changed" in run("author", "config", "edit", pushed, EDITOR=editor(tmp_path, "pass"))
    batches = editor(tmp_path, "text = text.replace('max_batch_size: 4', 'max_batch_size: 77')")
    run("author", "config", "edit", pushed, "--yes", "-m", "wait a little", EDITOR=batches)
    with Flotilla(flotilla.url, people["author"]["token"]) as client:
        newest = client.configs.get(pushed)
        assert newest["comment"] == "wait a little" and "77" in newest["pbtxt"]
    wrong = run("author", "config", "edit", pushed, status=1, EDITOR=editor(tmp_path, "text = 'max_batch_size: -7'"))
    assert "max_batch_size" in wrong
    assert Path(wrong.split("Your text is in ")[1].strip()).read_text() == "max_batch_size: -7"
    meanwhile = editor(
        tmp_path,
        "from flotilla.sdk import Flotilla\n"
        f"with Flotilla({flotilla.url!r}, {people['author']['token']!r}) as client:\n"
        f"    client.push_config({pushed!r}, 'max_batch_size: 2')\n"
        "text = 'max_batch_size: 3'",
    )
    lost = run("author", "config", "edit", pushed, "--yes", status=11, EDITOR=meanwhile)
    assert "Somebody stored another config meanwhile" in lost
    assert Path(lost.split("Your text is in ")[1].strip()).read_text() == "max_batch_size: 3"


def test_logs_of_a_deployment_name_it(run: Run, pushed: str) -> None:
    [row] = run("author", "logs", "deployment", pushed, "--json")
    assert row["error"] == "" and row["lines"] and all(pushed in line for line in row["lines"])
    assert "[permission_denied" in run("author", "logs", "node", row["node"], status=10)


def test_a_repository_of_triton_becomes_models(run: Run, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for model, number in (("imported-a", 1), ("imported-a", 4), ("imported-b", 1)):
        write_mlp(repository / model / str(number) / "model.onnx", seed=number)
    done = run("author", "push", "imported", str(repository), "--json")
    assert [(one["model"], one["state"], one["number"]) for one in done["made"]] == [
        ("imported-a", "ready", 1),
        ("imported-a", "ready", 2),
        ("imported-b", "ready", 1),
    ]
    assert done["version"]["state"] == "abandoned"
