"""``flotilla audit`` and the export against the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from registry.models import AuditEvent, AuditSeal, Membership, Project
from registry.services import models
from registry.services.audit import record, seal_pending
from tests.console.conftest import Cast, RunningConsole

Run = Callable[..., str]


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice"),
        "FLOTILLA_PROJECT": "wren",
    }

    def call(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["audit", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    return call


@pytest.fixture
def history(shared_cast: Cast) -> None:
    """Six models of Alice's project that are sealed, one that is not yet, and one of somebody else's project."""
    alice = shared_cast.actor("alice")
    for number in range(6):
        models.model_create(project=shared_cast.project, slug=f"finch-{number}", actor=alice)
    foreign = Project.objects.create(slug="kite-far", name="Kite")
    Membership.objects.create(project=foreign, user=shared_cast.charlie, role="admin")
    models.model_create(project=foreign, slug="hidden", actor=shared_cast.actor("charlie"))
    seal_pending(everything=True)
    models.model_create(project=shared_cast.project, slug="finch-late", actor=alice)


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_export_holds_all_that_one_may_see_and_proves_itself(
    run: Run, history: None, shared_cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.api.v1.audit._LINES_AT_ONCE", 2)
    file = tmp_path / "audit.jsonl"
    run("export", "-o", str(file))
    lines = parsed(file.read_text())
    project = str(shared_cast.project.pk)
    assert {line["chain"] for line in lines} <= {project, "site"}
    assert "hidden" not in file.read_text()
    assert [line["object_label"] for line in lines if line["sequence"] is None] == ["finch-late"]
    sealed = AuditSeal.objects.filter(chain=project).order_by("sequence")
    assert [line["hash"] for line in lines if line["chain"] == project and line["hash"]] == [
        seal.hash for seal in sealed
    ]
    assert f"{project}: {len(sealed)} events, whole" in run("verify", str(file))
    assert f"{project}: {len(sealed)} events, whole" in run("verify")
    assert "1 events are not sealed: nothing is proven about them" in run("verify", str(file))
    forged = file.read_text().replace("finch-3", "finch-9", 1)
    file.write_text(forged)
    assert "BROKEN" in run("verify", str(file), status=1)


def test_line_breaks_of_others_stay_within_a_line(run: Run, shared_cast: Cast, tmp_path: Path) -> None:
    """Also those that only some readers take for one, and what a spreadsheet or a terminal would run."""
    hostile = '=HYPERLINK("x")\r\n{"chain": "forged"}\u2028\u0085\x1b[2J\u202e,"'
    bob = shared_cast.actor("bob")
    record(actor=bob, action="test.run", obj=shared_cast.project, after={"comment": hostile})
    seal_pending(everything=True)
    file = tmp_path / "audit.jsonl"
    run("export", "-o", str(file))
    lines = [json.loads(line) for line in file.read_bytes().removesuffix(b"\n").split(b"\n")]
    assert {line["chain"] for line in lines} <= {str(shared_cast.project.pk), "site"}
    assert hostile in [(line["after"] or {}).get("comment") for line in lines]
    assert "whole" in run("verify", str(file))


def test_an_excerpt_says_that_it_is_one(run: Run, history: None, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    run("export", "-s", "finch-2", "-o", str(file))
    assert [line["object_label"] for line in parsed(file.read_text())] == ["finch-2"]
    assert "excerpt" in run("verify", str(file))


def test_an_export_goes_on_where_the_last_one_ended(history: None, shared_cast: Cast, console: RunningConsole) -> None:
    project = str(shared_cast.project.pk)
    with console.client(shared_cast.token("vera")) as client:
        whole = client.get("/api/v1/audit/export", params={"project_id": project})
        assert whole.headers["content-type"] == "application/x-ndjson"
        last = max(line["sequence"] or 0 for line in parsed(whole.text))
        rest = client.get("/api/v1/audit/export", params={"project_id": project, "after_sequence": str(last - 2)})
        assert [line["sequence"] for line in parsed(rest.text)] == [last - 1, last]
        for wrong in ({"after_sequence": "1"}, {"project_id": project, "after_sequence": "-1"}):
            assert client.get("/api/v1/audit/export", params=wrong).status_code == 400
    with console.client(shared_cast.token("charlie")) as client:
        assert project not in client.get("/api/v1/audit/export").text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("finch-2", {"finch-2"}),
        ("FINCH 3 alice", {"finch-3"}),
        ("model.create fin 4", {"finch-4"}),
        ("127.0.0.1 finch-1", {"finch-1"}),
        ("10.9.8.7", set()),
        ("'); DROP TABLE finch", set()),
        ("inch", set()),
    ],
)
def test_a_search_finds_beginnings_of_words(run: Run, history: None, text: str, found: set[str]) -> None:
    listed = json.loads(run("list", "-s", text, "--json"))
    assert {event["object_label"] for event in listed} == found


def test_a_search_without_a_word_finds_everything(run: Run, history: None) -> None:
    assert len(json.loads(run("list", "-s", " &|!() ", "--limit", "1000", "--json"))) == len(
        json.loads(run("list", "--limit", "1000", "--json"))
    )
    assert AuditEvent.objects.exists()
