"""Pages of API keys, service accounts and CI trust."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from flotilla.commands import push, sign_in
from registry.models import ApiToken, Issuer, Membership, TrustRule, User
from registry.services import tokens
from tests.console.conftest import Cast
from tests.console.web.conftest import Browse
from tests.registry.issuer import listening


def test_a_key_is_changed_renewed_and_revoked(cast: Cast, browse: Browse) -> None:
    row, old = cast.token_row("bob")
    client, page = browse("bob"), f"/settings/tokens/{row.pk}/"
    form = client.get(page).context["form"]
    given = {"seen": form["seen"].value(), "name": "renamed", "networks": "10.1.0.0/16, 192.0.2.7", "lifetime": "30"}
    assert client.post(page, given).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.allowed_networks) == ("renamed", ["10.1.0.0/16", "192.0.2.7"])
    assert row.expires_at is not None
    late = client.post(page, {**given, "name": "lost?"})
    assert late.status_code == 422 and "lost?" in late.text and "Somebody changed it" in late.text
    wrong = client.post(page, {**given, "seen": late.context["form"]["seen"].value(), "networks": "10.1.2.3/8"})
    assert "10.0.0.0/8" in wrong.text

    renewed = client.post(f"{page}rotate/", {"overlap": "1"})
    secret = renewed.context["secret"]
    assert secret in renewed.text and renewed["Cache-Control"] == "no-store"
    assert old.split("_")[1] in renewed.text and 'data-testid="token-previous"' in renewed.text
    listed = client.get("/settings/tokens/").text
    assert secret not in listed and old.split("_")[1] in listed
    for text in (old, secret):
        assert tokens.token_authenticate(text, ip="10.1.0.1") == row
    assert client.post(f"{page}revoke/").status_code == 302
    assert tokens.token_authenticate(secret, ip="10.1.0.1") is None
    assert browse("charlie").get(page).status_code == 404


def test_the_form_offers_no_longer_life_than_the_site_allows(cast: Cast, browse: Browse, settings: Any) -> None:
    settings.TOKEN_MAX_DAYS = 60
    form = browse("bob").get("/settings/tokens/").context["form"]
    assert [value for value, _label in form.fields["lifetime"].choices] == ["1", "30", "60"]
    refused = browse("bob").post("/settings/tokens/", {"name": "x", "scope": "read", "lifetime": ""})
    assert refused.status_code == 422 and not ApiToken.objects.exists()


def test_a_service_account_is_made_given_a_role_and_a_key_and_deleted(cast: Cast, browse: Browse) -> None:
    client = browse("alice")
    made = client.post("/settings/service-accounts/", {"username": "ci", "site_role": "none"})
    page = made["Location"]
    client.post(page, {"form": "role", "project": "wren", "role": "publisher"})
    assert Membership.objects.get(user__username="ci").role == "publisher"
    key = client.post(page, {"form": "key", "name": "push", "scope": "write", "project": "wren", "lifetime": "30"})
    found = tokens.token_authenticate(key.context["secret"])
    assert found is not None and found.owner.username == "ci"
    shown = client.get(page)
    assert "It has 1 keys, roles in 1 projects" in shown.text
    seen = shown.context["seen"]
    assert client.post(f"{page}act/", {"act": "disable", "seen": seen}).status_code == 302
    assert client.post(f"{page}act/", {"act": "delete", "seen": seen}).status_code == 409
    client.post(f"{page}act/", {"act": "delete", "seen": client.get(page).context["seen"]})
    assert User.objects.get(username="ci").deleted_at is not None
    assert client.get(page).status_code == 404
    assert browse("bob").get("/settings/service-accounts/").context["accounts"] == []
    assert browse("bob").post("/settings/service-accounts/", {"username": "x", "site_role": "none"}).status_code == 422


def test_trust_from_the_list_of_issuers_to_the_lines_of_a_workflow(cast: Cast, browse: Browse, settings: Any) -> None:
    settings.ISSUER_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    robot = User.objects.create(username="robot", is_service=True)
    Membership.objects.create(project=cast.project, user=robot, role="publisher")
    client = browse("alice")
    with listening() as server:
        given = {"kind": "github", "slug": "own", "url": server.url}
        assert client.post("/settings/ci/issuers/", given).status_code == 302
    assert len(Issuer.objects.get().keys) == 2
    rule = {
        "name": "push",
        "issuer": "own",
        "service_account": "robot",
        "repository": "octo/swift",
        "repository_id": "octo",
        "owner_id": "99",
        "environment": "production",
        "scope": "write",
        "lifetime_minutes": "15",
    }
    refused = client.post("/settings/ci/", rule)
    assert refused.status_code == 422 and "not a name" in refused.text and "octo/swift" in refused.text
    page = client.post("/settings/ci/", {**rule, "repository_id": "4711"})["Location"]
    shown = client.get(page)
    assert "id-token: write" in shown.text and "flotilla login --oidc" in shown.text
    assert yaml.safe_load(shown.context["workflow"])["jobs"]["push"]["environment"] == "production"
    form = shown.context["form"]
    changed = {**rule, "repository_id": "4711", "seen": form["seen"].value(), "is_enabled": "", "protected_ref": "on"}
    assert client.post(page, changed).status_code == 302
    row = TrustRule.objects.get()
    assert not row.is_enabled and row.protected_ref
    assert client.post("/settings/ci/issuers/own/act/", {"act": "delete"}).status_code == 409
    assert browse("bob").post(f"{page}delete/").status_code == 403
    assert browse("charlie").get(page).status_code == 404
    assert client.post(f"{page}delete/").status_code == 302
    assert client.post("/settings/ci/issuers/own/act/", {"act": "delete"}).status_code == 302
    assert not Issuer.objects.exists()


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_lines_of_a_workflow_are_commands_that_examples_use_too(cast: Cast, browse: Browse, kind: str) -> None:
    cast.trust_rule()
    rule = cast.trust_rule("night's")
    Issuer.objects.update(kind=kind)
    workflow = yaml.safe_load(browse("alice").get(f"/p/wren/settings/ci/{rule.pk}/").context["workflow"])
    example = yaml.safe_load((Path(__file__).parents[3] / f"examples/ci/{EXAMPLES[kind]}").read_text())
    if kind == "github":
        assert workflow["permissions"] == example["permissions"]
        script = [step["run"] for step in workflow["jobs"]["push"]["steps"] if "run" in step]
        used = [step.get("run") for step in example["jobs"]["deploy"]["steps"]]
        assert workflow["jobs"]["push"]["env"].keys() == example["jobs"]["deploy"]["env"].keys()
    else:
        script, used = workflow["push"]["script"], example["model"]["script"]
        assert workflow["push"]["id_tokens"].keys() <= example["model"]["id_tokens"].keys()
        assert workflow["push"]["variables"].keys() == example["variables"].keys()
    assert script[1] == "flotilla login --oidc --rule 'night'\"'\"'s'" and "flotilla login --oidc" in used
    for line, command in ((script[1], sign_in.login), (script[2].replace("model.onnx", __file__), push.push)):
        with command.make_context("flotilla", shlex.split(line)[2:]):
            pass
    TrustRule.objects.exclude(pk=rule.pk).delete()
    assert "--rule" not in browse("alice").get(f"/p/wren/settings/ci/{rule.pk}/").context["workflow"]


EXAMPLES = {"github": "github-actions.yml", "gitlab": "gitlab-ci.yml"}
