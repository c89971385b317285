"""``flotilla card``, ``version`` and ``quotas`` against the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from flotilla.cli import main
from registry.models import ModelVersion, Upload
from registry.services import cards
from tests.console.conftest import Cast, RunningConsole, join_node

Run = Callable[..., Any]


def runner(console: RunningConsole, token: str) -> Run:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": token,
        "FLOTILLA_PROJECT": "wren",
        "FLOTILLA_CONFIG_DIR": "/nonexistent",
    }

    def call(*arguments: str, status: int = 0, typed: str | None = None) -> Any:
        result = CliRunner().invoke(main, [*arguments], env=environment, input=typed)
        assert result.exit_code == status, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    return call


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    return runner(console, shared_cast.token("bob"))


def typing(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str | None]) -> None:
    monkeypatch.setattr(click, "edit", lambda text, **_options: change(text))


def test_a_card_is_stored_edited_and_compared(
    run: Run, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = shared_cast.ready_version().model
    assert "has no card yet" in run("card", "get", "finch", status=1)
    assert run("card", "set", "finch", "-", "-m", "first", typed="# Finch\n\nSings.  \n") == "finch card 1\n"
    assert run("card", "get", "finch") == "# Finch\n\nSings.  \n"
    typing(monkeypatch, lambda text: text)
    assert run("card", "edit", "finch") == "Nothing changed.\n"
    typing(monkeypatch, lambda text: text.replace("Sings", "Chirps"))
    assert "Your text is in" in run("card", "edit", "finch", status=1)
    assert run("card", "edit", "finch", "--yes", "--json")["number"] == 2
    changed = run("card", "diff", "finch", "1", "2", "--json", status=3)
    assert "+Chirps.  " in changed["diff"]
    assert [row["number"] for row in run("card", "history", "finch", "--json")] == [2, 1]

    def meanwhile(text: str) -> str:
        cards.card_save(model=model, text="# Other", actor=shared_cast.actor("bob"))
        return f"{text}Mine."

    typing(monkeypatch, meanwhile)
    said = run("card", "edit", "finch", "--yes", status=11)
    kept = Path(said.rpartition("Your text is in ")[2].strip())
    assert kept.read_text().endswith("Mine.")
    kept.unlink()
    assert run("card", "get", "finch") == "# Other\n"
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    assert "is not UTF-8 text" in run("card", "set", "finch", str(tmp_path / "latin.md"), status=2)


def test_a_first_card_is_written_in_the_editor(run: Run, shared_cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_cast.ready_version()
    typing(monkeypatch, lambda text: f"{text}\nNew.\n")
    assert run("card", "edit", "finch", "--yes", "--json")["text"] == "# finch\n\nNew.\n"
    assert "not_found" in run("card", "edit", "owl", "--yes", status=1)


def test_figures_of_a_version_are_set_compared_and_ranked(run: Run, shared_cast: Cast) -> None:
    shared_cast.ready_version(content=b"one")
    shared_cast.ready_version(content=b"two")
    said = ("--metric", "accuracy=0.91", "--metric", "loss=1e-3", "--metadata", 'labels=["a"]', "--metadata", "by=eva")
    found = run("version", "annotate", "finch", "1", *said, "--json")
    assert (found["metrics"], found["metadata"]) == ({"accuracy": 0.91, "loss": 0.001}, {"labels": ["a"], "by": "eva"})
    changed = run("version", "annotate", "finch", "1", "--metric", "f1=2", "--without-metric", "loss", "--json")
    assert changed["metrics"] == {"accuracy": 0.91, "f1": 2} and changed["metadata"] == found["metadata"]
    assert "Say what to set" in run("version", "annotate", "finch", "1", status=2)
    assert "is not NAME=NUMBER" in run("version", "annotate", "finch", "1", "--metric", "f1=nan", status=2)
    run("version", "annotate", "finch", "latest", "--metric", "accuracy=0.95")
    assert [row["number"] for row in run("version", "ranking", "finch", "accuracy", "--json")] == [2, 1]
    lowest = run("version", "ranking", "finch", "accuracy", "--lowest").splitlines()
    assert lowest[0].split() == ["VERSION", "ACCURACY", "STATE", "ALIASES"] and lowest[1].startswith("1 ")
    compared = run("version", "compare", "finch", "1", "2", status=3)
    assert "metrics.accuracy" in compared and "+0.04" in compared and "files.model.onnx" in compared
    assert run("version", "compare", "finch", "1", "1") == "They are equal.\n"
    assert "metrics.f1" in run("version", "show", "finch", "1")


def test_a_push_says_where_a_version_comes_from(run: Run, shared_cast: Cast, tmp_path: Path) -> None:
    shared_cast.ready_version("owl")
    (tmp_path / "model.onnx").write_bytes(b"weights")
    said = {"git-sha": "abc123", "git-ref": "main", "author": "eva", "dataset": "birds 2026"}
    options = [word for name, value in said.items() for word in (f"--{name}", value)]
    options += ["--metric", "accuracy=0.9", "--metadata", "epochs=3", "--parent", "owl:1", "--no-wait"]
    run("push", "finch", str(tmp_path / "model.onnx"), *options)
    version = ModelVersion.objects.get(model__slug="finch")
    assert version.source == {name.replace("-", "_"): value for name, value in said.items()}
    assert (version.metrics, version.metadata) == ({"accuracy": 0.9}, {"epochs": 3})
    assert version.parent == ModelVersion.objects.get(model__slug="owl")
    lineage = run("version", "lineage", "finch", str(version.pk), "--json")
    assert [row["model"] for row in lineage["ancestors"]] == ["owl"]
    assert "into  finch" in run("version", "lineage", "owl", "1")
    assert "is not VERSION" in run("push", "finch", str(tmp_path), "--parent", "owl:", status=2)


def test_models_are_made_described_and_found(run: Run) -> None:
    paper = "https://papers.example/a?b=c"
    said = ("--task", "object-detection", "--tag", "team=vision", "--tag", "beta=", "--link", f"Paper={paper}")
    made = run("model", "create", "heron", *said, "--json")
    assert (made["tags"], made["task"]) == ({"team": "vision", "beta": ""}, "object-detection")
    assert made["links"] == [{"label": "Paper", "url": paper}]
    assert "Say what to change" in run("model", "change", "heron", status=2)
    change = ("--tag", "team=birds", "--without-tag", "beta", "--without-link", "Paper", "-m", "Finds herons.")
    changed = run("model", "change", "heron", *change, "--json")
    assert (changed["tags"], changed["links"], changed["description"]) == ({"team": "birds"}, [], "Finds herons.")
    assert changed["task"] == "object-detection"
    run("model", "create", "egret")
    assert [row["slug"] for row in run("models", "--tag", "team=birds", "--json")] == ["heron"]
    assert [row["slug"] for row in run("models", "--search", "herons", "--owner", "bob", "--json")] == ["heron"]
    assert run("models", "--state", "archived", "--json") == []
    assert "is not NAME=VALUE" in run("model", "create", "ibis", "--tag", "team", status=2)


def test_a_push_sends_no_links_unasked_and_begins_no_version_for_them(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "elsewhere").write_bytes(b"weights")
    (folder / "model.onnx").symlink_to(tmp_path / "elsewhere")
    assert "model.onnx is a link" in run("push", "finch", str(folder), "--no-wait", status=1)
    assert not ModelVersion.objects.exists()
    run("push", "finch", str(folder), "--follow-links", "--no-wait")
    assert Upload.objects.get(version__model__slug="finch").path == "model.onnx"


def test_a_config_is_judged_with_what_it_would_change(run: Run, shared_cast: Cast, tmp_path: Path) -> None:
    shared_cast.environment("development", approvals=0)
    join_node(shared_cast, environment="development")
    shared_cast.ready_version()
    file = tmp_path / "config.pbtxt"
    file.write_text(run("config", "get", "finch"))
    assert run("config", "check", "finch", str(file)) == "The config is valid.\n"
    run("deploy", "finch", "-v", "1", "--no-wait")
    assert "finch on development: it serves already; nothing would change." in run(
        "config", "check", "finch", str(file)
    )
    file.write_text(file.read_text().replace("max_batch_size: 8", "max_batch_size: 4"))
    (effect,) = run("config", "check", "finch", str(file), "--json")["affects"]
    assert (effect["configs"], effect["nodes"], effect["is_same"]) == ([1], ["node-1"], False)
    assert "node-1 would load it beside what serves, then switch" in run("config", "check", "finch", str(file))
    file.write_text("max_batch_sise: 4")
    assert run("config", "check", "finch", str(file), "--json", status=1)["affects"] == []


def test_versions_are_put_away_and_brought_back(run: Run, shared_cast: Cast) -> None:
    shared_cast.ready_version()
    assert run("version", "archive", "finch", "1") == "finch v1 is archived.\n"
    assert run("version", "restore", "finch", "1", "--json")["state"] == "ready"
    begun = shared_cast.version()
    assert "is abandoned" in run("version", "abandon", "finch", str(begun.pk), "-m", "wrong file")
    assert run("version", "show", "finch", str(begun.pk), "--json")["state_reason"] == "wrong file"


def test_quotas_are_read_by_members_and_set_by_administrators(
    run: Run, shared_cast: Cast, console: RunningConsole
) -> None:
    shared_cast.ready_version()
    assert run("quotas", "show").splitlines()[0].split() == ["QUOTA", "USED", "LIMIT"]
    assert "permission_denied" in run("quotas", "set", "--nodes", "3", status=10)
    assert "Name a limit" in run("quotas", "set", status=2)
    alice = runner(console, shared_cast.token("alice"))
    found = alice("quotas", "set", "--bytes", "2 GiB", "--versions", "7", "--json")
    assert (found["bytes"], found["versions"]["limit"]) == ({"used": 7, "limit": 2 << 30}, 7)
    assert "Write it such as 500GiB" in alice("quotas", "set", "--bytes", "2 apples", status=2)
