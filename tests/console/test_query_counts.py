"""No list asks the database once a row, and no page asks more than it did: ``query_counts.json`` only falls.

``FLOTILLA_UPDATE_QUERY_COUNTS=1 pytest tests/console/test_query_counts.py`` writes the file anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.identity import session_rules
from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import ApplySet, Membership, Project, ScimGroup, SsoProvider, User, Webhook
from registry.services import (
    aliases,
    apply_sets,
    approvals,
    cards,
    configs,
    deployments,
    scim_tokens,
    service_accounts,
    sso,
    tokens,
    trust,
    webhooks,
)
from tests.console.conftest import Cast, join_node
from tests.console.web.conftest import Served, make_served

BASELINE = Path(__file__).with_name("query_counts.json")
PROJECT = "/api/v1/projects/wren/"
MODEL = f"{PROJECT}models/finch/"


@pytest.fixture
def served(cast: Cast) -> Served:
    return make_served(cast)


def make_webhook(cast: Cast, name: str) -> Webhook:
    url = "https://example.com/hook"
    hook, _secret = webhooks.webhook_create(
        project=cast.project, name=name, url=url, events=["*"], actor=cast.actor("alice")
    )
    return hook


def make_provider(cast: Cast, name: str) -> None:
    alice = cast.actor("alice")
    provider = sso.sso_provider_create(
        slug=name, name=name, issuer=f"https://{name}.example", client_id="x", client_secret="y", actor=alice
    )
    scim_tokens.scim_token_create(name=name, provider=provider, actor=alice)


def grow_sign_in(cast: Cast, name: str) -> None:
    """Add one row of everything that is listed of signing in."""
    make_provider(cast, name)
    first = SsoProvider.objects.get(slug="first")
    sso.group_mapping_create(provider=first, group=name, project=cast.project, role="viewer", actor=cast.actor("alice"))
    ScimGroup.objects.create(provider=first, display_name=name).members.add(cast.bob)
    SocialAccount.objects.create(user=cast.bob, provider=name, uid=name)
    for user in (cast.alice, cast.bob):
        client = Client()
        client.force_login(user)
        client.get("/")


def addresses(served: Served) -> dict[str, str]:
    """Return what is counted, by name: every page, and every list and item of the API."""
    deployment = f"{PROJECT}deployments/{served.deployment.pk}/"
    hook = make_webhook(served.cast, "first")
    rule = served.cast.trust_rule("first")
    signing = served.cast.signing_key("first")
    identity = served.cast.signing_identity("first")
    key, _text = served.cast.token_row("alice")
    make_provider(served.cast, "first")
    api = {
        "user": "/api/v1/users/bob/",
        "user impact": "/api/v1/users/bob/impact",
        "user access": "/api/v1/users/bob/access",
        "sessions": "/api/v1/users/bob/sessions/",
        "sso-providers": "/api/v1/sso-providers/",
        "sso-provider": "/api/v1/sso-providers/first/",
        "group-mappings": "/api/v1/sso-providers/first/mappings/",
        "scim-groups": "/api/v1/sso-providers/first/groups/",
        "scim-tokens": "/api/v1/scim-tokens/",
        "projects": "/api/v1/projects/",
        "members": f"{PROJECT}members/",
        "models": f"{PROJECT}models/",
        "model": MODEL,
        "impact": f"{MODEL}impact",
        "card": f"{MODEL}card/",
        "card revisions": f"{MODEL}card/revisions/",
        "samples": f"{MODEL}samples/",
        "version samples": f"{MODEL}versions/1/samples/",
        "card revision": f"{MODEL}card/revisions/1/",
        "card diff": f"{MODEL}card/revisions/1/diff?against=1",
        "policies": f"{PROJECT}policies/",
        "quotas": f"{PROJECT}quotas/",
        "aliases": f"{MODEL}aliases/",
        "alias": f"{MODEL}aliases/latest/",
        "ranking": f"{MODEL}ranking?metric=accuracy",
        "lineage": f"{MODEL}versions/1/lineage",
        "compare": f"{MODEL}versions/1/compare?against=1",
        "preview": f"{MODEL}versions/1/preview?path=model.onnx",
        "versions": f"{MODEL}versions/",
        "version": f"{MODEL}versions/1/",
        "files": f"{MODEL}versions/1/files/",
        "checks": f"{MODEL}versions/1/checks/",
        "uploads": f"{MODEL}versions/1/uploads/",
        "measurements": f"{MODEL}versions/1/measurements/",
        "configs": f"{MODEL}configs/",
        "deployments": f"{PROJECT}deployments/",
        "deployment": deployment,
        "rollouts": f"{deployment}rollouts/",
        "rollout": f"/api/v1/rollouts/{served.deployment.rollouts.earliest('created_at').pk}/",
        "rollout stages": f"/api/v1/rollouts/{served.deployment.rollouts.earliest('created_at').pk}/stages",
        "approval stages": f"/api/v1/approvals/{served.approval.pk}/stages",
        **{
            name: f"/api/v1/{name}/"
            for name in (
                "approvals",
                "operations",
                "audit",
                "environments",
                "fleets",
                "nodes",
                "join-tokens",
                "api-keys",
                "users",
                "me",
            )
        },
        "approval": f"/api/v1/approvals/{served.approval.pk}/",
        "operation": f"/api/v1/operations/{served.operation.pk}/",
        "node": f"/api/v1/nodes/{served.node.pk}/",
        "service-accounts": "/api/v1/service-accounts/",
        "service-account": "/api/v1/service-accounts/robot/",
        "api-key": f"/api/v1/api-keys/{key.pk}/",
        "issuers": "/api/v1/issuers/",
        "issuer": "/api/v1/issuers/github/",
        "signing-keys": f"{PROJECT}signing-keys/",
        "signing-key": f"{PROJECT}signing-keys/{signing.pk}/",
        "signing-identities": f"{PROJECT}signing-identities/",
        "signing-identity": f"{PROJECT}signing-identities/{identity.pk}/",
        "trust-rules": f"{PROJECT}trust-rules/",
        "trust-rule": f"{PROJECT}trust-rules/{rule.pk}/",
        "webhooks": "/api/v1/webhooks/",
        "webhook": f"/api/v1/webhooks/{hook.pk}/",
        "deliveries": f"/api/v1/webhooks/{hook.pk}/deliveries/",
    }
    pages = {
        **served.paths(),
        "webhook": f"/settings/webhooks/{hook.pk}/",
        "token": f"/settings/tokens/{key.pk}/",
        "person": "/settings/people/bob/",
        "sso-provider": "/settings/sso/first/",
        "service-account": "/settings/service-accounts/robot/",
        "trust-rule": f"/p/wren/settings/ci/{rule.pk}/",
    }
    return {**{f"api {name}": path for name, path in api.items()}, **{f"page {name}": pages[name] for name in pages}}


def grow(served: Served, name: str) -> None:
    """Add one row of everything that is listed somewhere."""
    cast, alice = served.cast, served.cast.actor("alice")
    project = Project.objects.create(slug=name, name=name)
    Membership.objects.create(project=project, user=cast.alice, role="admin")
    person = User.objects.create(username=name)
    Membership.objects.create(project=cast.project, user=person, role="viewer")
    make_webhook(cast, name)
    grow_sign_in(cast, name)
    cast.trust_rule(name)
    cast.signing_key(name)
    members = [{"kind": "Webhook", "name": name}, {"kind": "Membership", "name": "alice"}]
    apply_sets.apply_set_record(project=cast.project, name=name, members=members, apply_set=None, actor=alice)
    grown = [*served.apply_set.members, {"kind": "Deployment", "name": f"{name}@dev"}, {"kind": "Model", "name": name}]
    ApplySet.objects.filter(pk=served.apply_set.pk).update(members=grown)
    served.apply_set.refresh_from_db()
    cast.signing_identity(name)
    robot = User.objects.get(username="robot")
    Membership.objects.create(project=project, user=robot, role="viewer")
    tokens.token_create(owner=robot, name=name, scopes=["read"], actor=alice)
    service_accounts.service_account_create(username=f"machine-{name}", actor=alice)
    trust.issuer_create(slug=name, kind="gitlab", url=f"https://{name}.example", actor=alice)
    tokens.token_create(owner=cast.alice, name=name, scopes=["read"], project=None, actor=alice)
    version = cast.ready_version("finch", name.encode())
    other = cast.ready_version(name, b"other " + name.encode())
    for one in (version, other):
        cards.card_save(model=one.model, text=f"# {name}", version=one, actor=alice)
        aliases.alias_set(model=one.model, name=name, version=one, actor=alice)
    configs.config_create(
        model=version.model, body={"backend": "onnxruntime", "max_batch_size": len(name)}, actor=alice
    )
    join_node(cast, name, environment="dev")
    fleet = cast.environment(name, approvals=1)
    spec = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))
    for model, where in ((other.model, served.dev), (version.model, fleet), (other.model, fleet)):
        made = deployments.deployment_change(model=model, fleet=where, spec=spec, actor=alice)
        if made.approval is not None and model == other.model:
            approvals.approval_withdraw(approval=made.approval, actor=alice)
    newest = DeploymentSpec(routes=(RouteSpec(version=version.number or 0, role="live", weight=100),))
    deployments.deployment_change(model=version.model, fleet=served.dev, spec=newest, actor=alice)


def counts(paths: dict[str, str], get: Callable[[str], Any]) -> dict[str, int]:
    found = {}
    for name, path in paths.items():
        with CaptureQueriesContext(connection) as queries:
            answer = get(path)
        assert answer.status_code == 200, (name, answer)
        found[name] = len(queries)
    return found


def test_queries_do_not_grow_with_rows_nor_with_time(
    served: Served, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_rules, "SEEN_SECONDS", 3600)  # once in the whole test
    client.force_login(served.cast.alice)
    paths = addresses(served)
    grow(served, "one")
    counts(paths, client.get)  # fills caches
    few = counts(paths, client.get)
    grow(served, "three")
    grow(served, "seventeen")
    many = counts(paths, client.get)
    growing = {name: f"{few[name]} -> {many[name]}" for name in paths if many[name] > few[name]}
    assert growing == {}
    if os.environ.get("FLOTILLA_UPDATE_QUERY_COUNTS") == "1":
        BASELINE.write_text(json.dumps(many, indent=2, sort_keys=True) + "\n")
    baseline = json.loads(BASELINE.read_text())
    assert {name: count for name, count in many.items() if count > baseline.get(name, 0)} == {}
    assert baseline.keys() == many.keys()
