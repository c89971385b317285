"""``flotilla fleet``, ``projects``, ``model``, ``download``, ``apply-sets`` against the real server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from django.utils import timezone

from flotilla.sdk import Flotilla
from flotilla.sdk import download as downloading
from flotilla.sdk.transport import ApiError
from registry.models import Project, RegisteredModel, VersionFile
from registry.services import apply_sets, fleet
from serving_node.contract.control import Observed
from tests.console.conftest import Cast, RunningConsole, join_node
from tests.console.test_catalog_commands import Run, runner


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    return runner(console, shared_cast.token("alice"))


def test_nodes_are_cordoned_drained_and_retired(run: Run, shared_cast: Cast) -> None:
    shared_cast.environment("dev", approvals=0)
    node, _token = join_node(shared_cast, environment="dev")
    seen = Observed(node=str(node.pk), epoch=1, generation_seen=0, generation_applied=0)
    fleet.node_observe(node=node, observed=seen, now=timezone.now())
    node.refresh_from_db()
    assert node.name in run("fleet", "nodes") and run("fleet", "nodes", "-f", "dev", "--json")[0]["name"] == node.name
    assert run("fleet", "cordon", node.name) == f"{node.name} takes nothing new.\n"
    assert run("fleet", "nodes", "--json")[0]["is_schedulable"] is False
    assert run("fleet", "uncordon", str(node.pk), "--json")["is_schedulable"] is True
    assert "Aborted" in run("fleet", "drain", node.name, typed="n\n", status=1)
    assert run("fleet", "nodes", "--json")[0]["state"] == node.state
    assert run("fleet", "drain", node.name, "--yes", "--json")["state"] == "draining"
    assert run("fleet", "retire", node.name, "--yes") == f"{node.name} is retired.\n"
    assert run("fleet", "nodes", "--json") == []
    assert "There is no node" in run("fleet", "cordon", node.name, status=1)


def test_a_node_joins_with_a_token_made_in_a_shell(run: Run) -> None:
    token = run("fleet", "join-token", "--label", "environment=dev", "--valid", "2h").strip()
    listed = run("fleet", "join-tokens", "--json")
    assert [row["labels"] for row in listed] == [{"environment": "dev"}] and token not in str(listed)
    node, _own = fleet.node_join(
        token=token,
        name="made",
        endpoints={"admin": "http://127.0.0.1:24993"},
        admin_secret="s" * 32,
        inventory={},
        contract_version=1,
    )
    assert node.labels == {"environment": "dev"}
    assert "whole hours" in run("fleet", "join-token", "--valid", "90m", status=2)
    assert "is not NAME=VALUE" in run("fleet", "join-token", "--label", "zone", status=2)


def test_projects_are_made_and_described(run: Run, shared_cast: Cast, console: RunningConsole) -> None:
    assert run("projects", "create", "owl", "--name", "Owl", "-m", "At night") == "Project owl is made.\n"
    assert "owl" in run("projects", "list")
    assert run("projects", "change", "owl", "-m", "", "--json")["description"] == ""
    assert Project.objects.get(slug="owl").name == "Owl"
    assert "Say what to change" in run("projects", "change", "owl", status=2)
    charlie = runner(console, shared_cast.token("charlie"))
    assert "permission_denied" in charlie("projects", "create", "jay", status=10)


def test_a_model_is_changed_put_away_and_deleted(run: Run, shared_cast: Cast) -> None:
    shared_cast.version()
    assert run("model", "change", "finch", "--task", "tabular-classification", "--json")["task"]
    assert "Say what to change" in run("model", "change", "finch", status=2)
    run("model", "archive", "finch")
    assert run("model", "show", "finch", "--json")["state"] == "archived"
    run("model", "restore", "finch")
    assert RegisteredModel.objects.get().state == "active"
    run("model", "archive", "finch")
    assert "Aborted" in run("model", "delete", "finch", typed="n\n", status=1)
    assert run("model", "delete", "finch", "--yes", "--json")["deleted"] == "finch"
    assert not RegisteredModel.objects.exists()


def test_files_come_down_whole_and_once(
    run: Run, shared_cast: Cast, console: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 8192
    shared_cast.ready_version(content=content)
    target = tmp_path / "out" / "model.onnx"
    assert run("download", "finch", "1", "--to", str(tmp_path / "out")) == f"{target}\n"
    assert target.read_bytes() == content
    changed = target.stat().st_ctime_ns
    run("download", "finch", "1", "model.onnx", "--to", str(tmp_path / "out"))
    assert target.stat().st_ctime_ns == changed, "what is there is not fetched again"
    assert "no file other" in run("download", "finch", "1", "other", "--to", str(tmp_path), status=1)

    # A line that is cut in the middle goes on where it was; one that gives nothing at all is given up.
    target.unlink()
    with Flotilla(console.url, shared_cast.token("vera"), "wren") as client:
        whole, starts = client.transport.pieces, []

        def cut(path: str, params: dict[str, str], *, start: int = 0):  # type: ignore[no-untyped-def]
            starts.append(start)
            left = 900_000
            for piece in whole(path, params, start=start):
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    raise ApiError(0, "unreachable", "cut")

        monkeypatch.setattr(client.transport, "pieces", cut)
        client.catalog.download("finch", 1, tmp_path / "out")
        assert target.read_bytes() == content and starts == [0, 900_000, 1_800_000]
        monkeypatch.setattr(client.transport, "pieces", lambda *_path, **_start: iter(()))
        target.unlink()
        with pytest.raises(ApiError, match="ended after 0 of"):
            client.catalog.download("finch", 1, tmp_path / "out")
        assert [*target.parent.iterdir()] == []


def test_damaged_and_unsafe_files_are_refused(shared_cast: Cast, console: RunningConsole, tmp_path: Path) -> None:
    version = shared_cast.ready_version()
    with Flotilla(console.url, shared_cast.token("vera"), "wren") as client:
        [file] = client.catalog.files("finch", 1)
        address = "projects/wren/models/finch/versions/1/download"
        wrong = {**file, "sha256": hashlib.sha256(b"other").hexdigest()}
        with pytest.raises(ApiError, match="arrived damaged"):
            downloading.fetch_file(client.transport, address, wrong, tmp_path / "out", lambda *_said: None)
        for path in ("../up", "/etc/passwd", "a/../../b"):
            with pytest.raises(ApiError, match="not a path below"):
                downloading.fetch_file(
                    client.transport, address, {**file, "path": path}, tmp_path / "out", lambda *_said: None
                )
    assert [*(tmp_path / "out").iterdir()] == [] and VersionFile.objects.filter(version=version).count() == 1


def test_sets_of_files_are_listed_and_forgotten(run: Run, shared_cast: Cast) -> None:
    shared_cast.version()
    members = [{"kind": "Model", "name": "finch"}, {"kind": "Membership", "name": "nobody"}]
    apply_sets.apply_set_record(
        project=shared_cast.project, name="prod", members=members, apply_set=None, actor=shared_cast.actor("alice")
    )
    assert run("apply-sets", "list", "--json")[0]["applied_by"] == "alice"
    shown = {row["name"]: row["standing"] for row in run("apply-sets", "show", "prod", "--json")}
    assert shown == {"finch": "applied", "nobody": "gone"} and "finch" in run("apply-sets", "show", "prod")
    assert run("apply-sets", "list", "--site", "--json") == []
    run("apply-sets", "forget", "prod")
    assert run("apply-sets", "list", "--json") == []
