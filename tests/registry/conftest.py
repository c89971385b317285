"""A small cast and builders of rows, so that each test says only what matters to it."""

from __future__ import annotations

import hashlib
import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec
from registry.models import (
    Blob,
    Environment,
    Fleet,
    Membership,
    ModelVersion,
    Project,
    RegisteredModel,
    ServingNode,
    User,
    VersionState,
)
from registry.services import deployments, fleet, models, versions
from registry.services.rollouts import rollout_progress
from serving_node.contract.control import FileRef, Observed, ObservedUnit, Reason
from serving_node.contract.digests import manifest_digest
from serving_node.contract.signature import ModelSignature, TensorSignature
from serving_node.contract.states import UnitState

SIGNATURE = ModelSignature(
    inputs=(TensorSignature("x", "FP32", (-1, 16)),), outputs=(TensorSignature("y", "FP32", (-1, 4)),)
)
SYSTEM = Actor.system("test")


class World:
    """Alice administers, Bob approves, Carol publishes, Dan views, Eve is no member, Robot is a service account."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.project = Project.objects.create(slug="team", name="Team")
        self.other = Project.objects.create(slug="other", name="Other")
        self.alice = self.user("alice", "admin", site_role="admin")
        self.bob = self.user("bob", "approver")
        self.carol = self.user("carol", "publisher")
        self.dan = self.user("dan", "viewer")
        self.eve = self.user("eve", "")
        Membership.objects.create(project=self.other, user=self.eve, role="admin")
        self.robot = self.user("robot", "admin", is_service=True)
        self.development = self.fleet("development", protected=False)
        self.production = self.fleet("production", protected=True)

    def user(self, name: str, role: str, **columns: Any) -> User:
        user = User.objects.create(username=name, **columns)
        if role:
            Membership.objects.create(project=self.project, user=user, role=role)
        return user

    def actor(self, user: User, **extra: Any) -> Actor:
        return Actor.person(user, **extra)

    def fleet(self, slug: str, *, protected: bool) -> Fleet:
        environment = Environment.objects.create(slug=slug, name=slug, requires_approval=protected)
        return Fleet.objects.create(slug=slug, name=slug, environment=environment, selector={"environment": slug})

    def model(self, slug: str = "", user: User | None = None, project: Project | None = None) -> RegisteredModel:
        slug = slug or f"model-{next(self._numbers)}"
        project = project or self.project
        owner = user or (self.eve if project == self.other else self.carol)
        return models.model_create(project=project, slug=slug, actor=self.actor(owner))

    def blob(self, content: bytes) -> Blob:
        return Blob.objects.get_or_create(
            sha256=hashlib.sha256(content).hexdigest(),
            defaults={"size": len(content), "storage_key": "none"},
        )[0]

    def ready(
        self, model: RegisteredModel, user: User | None = None, content: bytes = b"", actor: Actor | None = None
    ) -> ModelVersion:
        content = content or f"content {next(self._numbers)}".encode()
        version = versions.version_create(model=model, actor=actor or self.actor(user or model.owner))
        blob = self.blob(content)
        versions.version_add_file(version=version, path="model.onnx", blob=blob)
        ModelVersion.objects.filter(pk=version.pk).update(state=VersionState.VALIDATING)
        version.refresh_from_db()
        digest = manifest_digest([FileRef("model.onnx", blob.sha256, blob.size)])
        versions.version_accept(
            version=version, signature=SIGNATURE, format="onnx", manifest_digest=digest, size=blob.size
        )
        version.refresh_from_db()
        return version

    def node(self, name: str = "node-1", environment: str = "development", *, seen: bool = True) -> ServingNode:
        _token, text = fleet.join_token_create(labels={"environment": environment}, actor=SYSTEM)
        node, _own = fleet.node_join(
            token=text,
            name=name,
            endpoints={"admin": "http://127.0.0.1:8003"},
            admin_secret="s" * 32,
            inventory={},
            contract_version=1,
        )
        if seen:
            self.observe(node)
        node.refresh_from_db()
        return node

    def observe(
        self,
        node: ServingNode,
        states: dict[str, str] | None = None,
        *,
        applied: int | None = None,
        now: Any = None,
        draining: bool = False,
        reason: str = "",
    ) -> bool:
        """Let the node say that it has applied what it should do, with all wanted units ready (or as given)."""
        from registry.selectors.desired import desired_state

        desired = desired_state(node)
        units = [
            ObservedUnit(
                name=model.name,
                unit=unit.unit,
                version=unit.version,
                state=UnitState((states or {}).get(unit.unit, "ready")),
                reason=Reason("LOAD_FAILED", reason) if reason and (states or {}).get(unit.unit) == "failed" else None,
            )
            for model in desired.models
            for unit in model.units
        ]
        done = desired.generation if applied is None else applied
        observed = Observed(
            node=str(node.id),
            epoch=desired.epoch,
            generation_seen=done,
            generation_applied=done,
            models=tuple(units),
            draining=draining,
        )
        return fleet.node_observe(node=node, observed=observed, now=now or timezone.now())

    def spec(self, *routes: dict[str, Any], **extra: Any) -> DeploymentSpec:
        return DeploymentSpec.from_json({"routes": list(routes), **extra})

    def deploy(self, model: RegisteredModel, target: Fleet, spec: DeploymentSpec, user: User | None = None) -> Any:
        return deployments.deployment_change(model=model, fleet=target, spec=spec, actor=self.actor(user or self.carol))

    def settle(self, deployment: Any, *nodes: ServingNode, passes: int = 5) -> None:
        """Let nodes obey and reconcile until nothing moves any more."""
        for step in range(passes):
            at = timezone.now() + timedelta(milliseconds=step)
            for node in nodes:
                self.observe(node, now=at)
            rollout_progress(deployment_id=deployment.id, now=at)
        deployment.refresh_from_db()


@pytest.fixture(autouse=True)
def _folders(settings: Any, tmp_path: Any) -> None:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.STAGING_DIR.mkdir()
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()


@pytest.fixture(autouse=True)
def _silence(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect event topics instead of sending them."""
    from registry import telemetry

    topics: list[str] = []
    monkeypatch.setattr(telemetry, "publish", lambda topic, *args, **extra: topics.append(topic))
    return topics


@pytest.fixture
def topics(_silence: list[str]) -> list[str]:
    return _silence


@pytest.fixture
def world(db: None) -> World:
    return World()
