"""Pages as a signed-in person sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import ApplySet, ApprovalRequest, Deployment, Fleet, ModelVersion, Operation, Rollout, ServingNode
from registry.services import aliases, apply_sets, cards, deployments, fleet
from tests.console.conftest import NODE_ENDPOINTS, Cast, make_cast, signed_in

Browse = Callable[[str], Client]


@dataclass
class Served:
    """Model finch v1 runs on fleet dev; a change for fleet prod waits for approval; node-1 has joined."""

    cast: Cast
    version: ModelVersion
    deployment: Deployment
    approval: ApprovalRequest
    operation: Operation
    node: ServingNode
    dev: Fleet
    prod: Fleet
    apply_set: ApplySet
    rollout: Rollout

    def paths(self) -> dict[str, str]:
        """Return every page that a member of the project may open."""
        model = "/p/wren/models/finch/"
        return {
            "home": "/",
            "models": "/p/wren/models/",
            "model-new": "/p/wren/models/new/",
            "upload": "/p/wren/upload/",
            "model": model,
            **{
                name: f"{model}{name}/"
                for name in (
                    "edit",
                    "card",
                    "card/edit",
                    "versions",
                    "aliases",
                    "samples",
                    "configs",
                    "deployments",
                    "metrics",
                    "try",
                    "activity",
                )
            },
            "version": f"{model}versions/1/",
            "version-samples": f"{model}versions/1/samples/",
            "compare": f"{model}versions/compare/?before=1&after=champion",
            "ranking": f"{model}versions/?metric=accuracy",
            "preview": f"{model}versions/1/preview/?path=model.onnx",
            "measurements": f"{model}versions/1/measurements/",
            "config": f"{model}configs/1/",
            "config-new": f"{model}configs/new/",
            "config-text": f"{model}configs/new/?as=text",
            "deploy": f"{model}deploy/",
            "deployment-list": "/p/wren/deployments/",
            "deployment": f"/p/wren/deployments/{self.deployment.pk}/",
            "rollout": f"/p/wren/deployments/{self.deployment.pk}/rollouts/{self.rollout.pk}/",
            "approvals": "/approvals/",
            "approval": f"/approvals/{self.approval.pk}/",
            "fleet": "/fleet/",
            "heat": "/fleet/heat/",
            "heat-hardware": "/fleet/heat/?show=hardware",
            "heat-latency": "/fleet/heat/?show=latency_p99",
            "join": "/fleet/join/",
            "node": f"/fleet/nodes/{self.node.pk}/",
            "members": "/settings/members/",
            "tokens": "/settings/tokens/",
            "service-accounts": "/settings/service-accounts/",
            "trust": "/settings/ci/",
            "issuers": "/settings/ci/issuers/",
            "connect": "/connect/",
            "environments": "/settings/environments/",
            "environment": "/settings/environments/prod/",
            "fleet-settings": "/settings/fleets/prod/",
            "projects": "/settings/projects/",
            "project": "/settings/projects/wren/",
            "signing": "/settings/projects/wren/signing/",
            "version-code": "/p/wren/models/finch/versions/1/code/",
            "policies": "/settings/projects/wren/policies/",
            "apply-sets": "/settings/apply-sets/",
            "apply-set": f"/settings/apply-sets/{self.apply_set.pk}/",
            "webhooks": "/settings/webhooks/",
            "password": "/settings/password/",
            "security": "/settings/security/",
            "people": "/settings/people/",
            "sso": "/settings/sso/",
            "scim": "/settings/sso/scim/",
            "audit": "/audit/",
            "api-docs": "/api/docs/",
            "api-docs-search": "/api/docs/?q=rollout+pause",
            "api-docs-group": "/api/docs/deployments/",
            "operations": "/operations/",
            "operation": f"/operations/{self.operation.pk}/",
            "jump": "/jump/?q=finch",
        }


def make_served(cast: Cast) -> Served:
    version = cast.ready_version()
    dev, prod = cast.environment("dev", approvals=0), cast.environment("prod", approvals=1)
    model, alice = version.model, cast.actor("alice")
    cards.card_save(model=model, text="# Finch\n\n- small\n\n|a|b|\n|-|-|\n|1|2|\n\n    code", actor=alice)
    aliases.alias_set(model=model, name="champion", version=version, is_protected=True, actor=alice)
    _row, token = fleet.join_token_create(labels={"environment": "dev"}, actor=cast.actor("alice"))
    node, _node_token = fleet.node_join(
        token=token,
        name="node-1",
        endpoints=NODE_ENDPOINTS,
        admin_secret="s" * 32,
        inventory={"cpu_count": 8},
        contract_version=1,
    )
    spec = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))

    def change(where: Fleet) -> Any:
        return deployments.deployment_change(
            model=version.model, fleet=where, spec=spec, comment="please", actor=cast.actor("alice")
        )

    applied, asked = change(dev), change(prod)
    assert applied.operation is not None and applied.rollout is not None and asked.approval is not None
    members = [
        {"kind": "Model", "name": "finch"},
        {"kind": "Deployment", "name": "finch@dev"},
        {"kind": "Membership", "name": "bob"},
        {"kind": "Webhook", "name": "was-here"},
    ]
    kept = apply_sets.apply_set_record(project=cast.project, name="flock", members=members, apply_set=None, actor=alice)
    return Served(
        cast, version, applied.deployment, asked.approval, applied.operation, node, dev, prod, kept, applied.rollout
    )


@pytest.fixture
def served(cast: Cast) -> Served:
    return make_served(cast)


@pytest.fixture
def shared_served(transactional_db: None) -> Served:
    """The same, visible to the server's threads too."""
    return make_served(make_cast())


@pytest.fixture
def browse(cast: Cast) -> Browse:
    """Return a browser of that person: ``browse("bob").get(...)``; "" is nobody."""

    def client(name: str) -> Client:
        found = Client()
        if name:
            signed_in(found, getattr(cast, name))
        return found

    return client
