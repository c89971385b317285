"""``flotilla export``, ``apply`` and ``diff`` against the real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from django.core.management import call_command

from flotilla.cli import main
from flotilla.sdk import Flotilla
from registry.models import (
    ApplySet,
    ApprovalRequest,
    AuditEvent,
    ConfigRevision,
    Membership,
    ModelCard,
    RegisteredModel,
    Role,
    Webhook,
)
from tests.console.conftest import Cast, RunningConsole, make_cast
from tests.history import emptying

Run = Callable[..., Any]


def runner(console: RunningConsole, token: str) -> Run:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": token,
        "FLOTILLA_PROJECT": "wren",
        "FLOTILLA_CONFIG_DIR": "/nonexistent",
        "WEBHOOK_CHAT_URL": "https://example.com/secret-path",
    }

    def call(*arguments: str, status: int = 0) -> Any:
        result = CliRunner().invoke(main, [*arguments], env=environment)
        assert result.exit_code == status, result.output
        return json.loads(result.output) if "--json" in arguments else result.output

    return call


@pytest.fixture
def run(shared_cast: Cast, console: RunningConsole) -> Run:
    return runner(console, shared_cast.token("alice"))


WORLD = """\
kind: Environment
name: dev
spec: {title: Development, requires_approval: false}
---
kind: Environment
name: prod
spec:
  title: Production
  requires_approval: true
  windows: [{effect: deny, cron: "0 0 24 12 *", duration_minutes: 2880, name: Holidays}]
---
kind: Fleet
name: dev
spec: {title: Development, environment: dev, selector: {environment: "dev"}}
---
kind: Fleet
name: prod
spec: {environment: prod, selector: {environment: "prod"}}
---
kind: Membership
name: charlie
spec: {role: viewer}
---
kind: Model
name: finch
spec:
  description: |
    Tells birds
    apart.
  tags: {team: birds, "on": "yes"}
  aliases: {champion: {version: 1}}
---
kind: Model
name: owl
spec: {}
---
kind: ModelCard
name: finch
spec: {text: "# Finch\n\nTells birds apart.  \n"}
---
kind: ServingConfig
name: finch
spec: {body: {max_batch_size: 4, dynamic_batching: {}}}
---
kind: Deployment
name: finch@dev
spec: {routes: [{version: champion, weight: 100}]}
---
kind: Webhook
name: chat
spec: {url_env: WEBHOOK_CHAT_URL, events: ["version.*", "approval.*"], format: slack}
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / "all.yaml").write_text(WORLD)
    return folder


def actions(document: dict[str, Any]) -> dict[str, str]:
    return {f"{row['kind']} {row['name']}": row["action"] for row in document["changes"]}


def test_documents_are_made_once_and_then_changed(run: Run, shared_cast: Cast, world: Path) -> None:
    shared_cast.ready_version()
    shown = run("diff", "-f", str(world), "--json", status=3)
    assert actions(shown)["Model finch"] == "update" and actions(shown)["Model owl"] == "create"
    assert shown["refused"] == [] and not RegisteredModel.objects.filter(slug="owl").exists()
    assert "Nobody can be asked here" in run("apply", "-f", str(world), status=2)
    made = run("apply", "-f", str(world), "--yes", "--json")
    assert made["failed"] is None and len(made["done"]) == len(made["changes"]) == 11
    assert [row["document"] for row in made["pending"]] == ["Deployment wren/finch@dev"]
    assert Membership.objects.get(user=shared_cast.charlie, project=shared_cast.project).role == Role.VIEWER
    before = AuditEvent.objects.count()
    again = run("apply", "-f", str(world), "--yes", "--json")
    assert [row for row in again["changes"] if row["action"] != "same"] == [] and again["done"] == []
    assert AuditEvent.objects.count() == before
    assert run("diff", "-f", str(world)) == "0 to change, 11 as they should be.\n"
    other = WORLD.replace("max_batch_size: 4", "max_batch_size: 8").replace("apart.  ", "and owls.")
    (world / "all.yaml").write_text(other.replace("birds, ", "owls, "))
    changed = run("diff", "-f", str(world), status=3)
    assert "    tags.team: birds -> owls" in changed
    assert "~ Deployment wren/finch@dev  (serves the new config)" in changed
    run("apply", "-f", str(world), "--yes")
    assert [*ModelCard.objects.order_by("number").values_list("comment", flat=True)] == ["flotilla apply"] * 2
    assert ConfigRevision.objects.filter(model__slug="finch").latest("number").body["max_batch_size"] == 8
    assert run("diff", "-f", str(world)) == "0 to change, 11 as they should be.\n"


def test_an_export_makes_an_empty_server_equal(
    shared_cast: Cast, console: RunningConsole, world: Path, tmp_path: Path, django_db_blocker: Any
) -> None:
    shared_cast.ready_version()
    first = runner(console, shared_cast.token("alice"))
    first("apply", "-f", str(world), "--yes")
    exported = first("export")
    assert "secret" not in exported and "example.com" not in exported
    assert next(yaml.safe_load_all(exported))["kind"] == "Project"
    with emptying():
        call_command("flush", interactive=False, verbosity=0)
    cast = make_cast()
    cast.ready_version()
    second = runner(console, cast.token("alice"))
    file = tmp_path / "export.yaml"
    file.write_text(exported)
    assert second("export") != exported
    second("apply", "-f", str(file), "--yes")
    assert second("export") == exported
    assert "0 to change" in second("diff", "-f", str(file))


def test_a_set_prunes_what_its_files_no_longer_name(run: Run, shared_cast: Cast, world: Path) -> None:
    shared_cast.ready_version()
    run("apply", "-f", str(world), "--set", "birds", "--yes")
    assert {row.project for row in ApplySet.objects.all()} == {None, shared_cast.project}
    rest = [part for part in WORLD.split("---\n") if "name: chat" not in part and "name: prod\n" not in part]
    (world / "all.yaml").write_text("---\n".join(part for part in rest if "finch@dev" not in part))
    assert "it with --set" in run("apply", "-f", str(world), "--prune", status=2)
    preview = run("diff", "-f", str(world), "--set", "birds", "--prune", status=3)
    assert "- Webhook wren/chat" in preview and "- Environment prod" in preview and "Membership" not in preview
    assert Webhook.objects.exists()
    pruned = run("apply", "-f", str(world), "--set", "birds", "--prune", "--yes", "--json")
    assert pruned["done"] == ["Webhook wren/chat", "Deployment wren/finch@dev", "Fleet prod", "Environment prod"]
    assert not Webhook.objects.exists() and RegisteredModel.objects.filter(slug="finch").exists()
    again = run("apply", "-f", str(world), "--set", "birds", "--prune", "--yes", "--json")
    assert again["done"] == []


def test_nothing_is_changed_when_the_server_refuses_a_part(run: Run, shared_cast: Cast, world: Path) -> None:
    shared_cast.ready_version()
    file = world / "all.yaml"
    file.write_text(WORLD + "---\nkind: Membership\nname: nobody\nspec: {role: viewer}\n")
    said = run("apply", "-f", str(file), "--yes", status=1)
    assert "refused: Membership wren/nobody" in said and f"({file}:" in said
    assert not RegisteredModel.objects.filter(slug="owl").exists()


def test_what_somebody_changed_since_the_plan_is_a_conflict(
    run: Run, shared_cast: Cast, world: Path, monkeypatch: pytest.MonkeyPatch, console: RunningConsole
) -> None:
    shared_cast.ready_version()
    from flotilla.declarative import applying

    plain = applying.apply
    token = shared_cast.token("alice")

    def late(*arguments: Any, **more: Any) -> Any:
        with Flotilla(console.url, token, "wren") as client:
            client.transport.change("PATCH", "projects/wren/models/finch/", json={"description": "Mine"})
        return plain(*arguments, **more)

    monkeypatch.setattr(applying, "apply", late)
    said = run("apply", "-f", str(world), "--yes", status=11)
    assert "Model wren/finch was changed since the plan was made" in said and "were not made" in said
    assert RegisteredModel.objects.get(slug="finch").description == "Mine"


def test_a_deployment_that_waits_for_approval_is_not_asked_for_twice(run: Run, shared_cast: Cast, world: Path) -> None:
    shared_cast.ready_version()
    (world / "all.yaml").write_text(WORLD.replace("finch@dev", "finch@prod"))
    made = run("apply", "-f", str(world), "--yes", "--json")
    [request] = ApprovalRequest.objects.all()
    assert made["pending"][0]["approval"] == str(request.pk)
    again = run("apply", "-f", str(world), "--yes")
    assert f"? Deployment wren/finch@prod  (waits for approval {request.pk})" in again
    assert ApprovalRequest.objects.count() == 1


def test_problems_of_files_come_with_their_lines(run: Run, shared_cast: Cast, world: Path) -> None:
    (world / "all.yaml").write_text("kind: Model\nname: finch\nspec:\n  colour: red\n")
    assert "all.yaml:4: spec has no field 'colour'" in run("diff", "-f", str(world), status=2)


def test_dry_runs_leave_nothing_behind(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    before = AuditEvent.objects.count()
    tried = alice.post(
        "/api/v1/projects/wren/models/", {"slug": "owl"}, headers={"Flotilla-Dry-Run": "true", "Idempotency-Key": "k"}
    )
    assert (tried.status_code, tried.headers["Flotilla-Dry-Run"]) == (201, "true")
    assert not RegisteredModel.objects.exists() and AuditEvent.objects.count() == before
    made = alice.post("/api/v1/projects/wren/models/", {"slug": "owl"}, headers={"Idempotency-Key": "k"})
    assert made.status_code == 201
    taken = alice.post("/api/v1/projects/wren/models/", {"slug": "owl"}, headers={"Flotilla-Dry-Run": "1"})
    assert taken.status_code == 409 and RegisteredModel.objects.count() == 1


def test_apply_sets_are_held_to_what_was_read(cast: Cast, api: Callable[..., Any]) -> None:
    bob, path = api("bob"), "/api/v1/projects/wren/apply-sets/birds/"
    body = {"members": [{"kind": "Model", "name": "finch"}]}
    assert bob.get(path).status_code == 404
    assert bob.put(path, body).status_code == 428
    made = bob.put(path, body, headers={"If-None-Match": "*"})
    assert made.status_code == 201 and made.json()["applied_by"] == "bob"
    assert bob.put(path, body, headers={"If-None-Match": "*"}).status_code == 412
    tag = bob.get(path).headers["ETag"]
    assert bob.put(path, {"members": []}, headers={"If-Match": tag}).status_code == 200
    assert bob.put(path, body, headers={"If-Match": tag}).status_code == 412
    assert [row["name"] for row in bob.get("/api/v1/projects/wren/apply-sets/").json()["results"]] == ["birds"]
    assert api("vera").put(path, body, headers={"If-Match": "*"}).status_code == 403
    assert bob.put("/api/v1/apply-sets/birds/", body, headers={"If-None-Match": "*"}).status_code == 404
    assert bob.delete(path, headers={"If-Match": "*"}).status_code == 204
    assert not ApplySet.objects.exists()
