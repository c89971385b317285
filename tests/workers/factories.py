"""Rows for worker tests, made without services where those are not what is tested."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.utils import timezone

from registry.domain.actors import Actor
from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.models import (
    Fleet,
    Membership,
    ModelVersion,
    Operation,
    Project,
    RegisteredModel,
    Role,
    ServingNode,
    Upload,
    UploadState,
    User,
)
from registry.services.deployments import ChangeOutcome, deployment_change
from registry.services.fleet import environment_create, fleet_create, join_token_create, node_join
from registry.services.staging import staging_path
from serving_node.contract.control import CONTRACT_VERSION
from tests.workers.checks import onnx_models
from workers.tasks.operations import work_on

SYSTEM = Actor.system("tests")


def make_user(**columns: object) -> User:
    return User.objects.create(username=f"user-{secrets.token_hex(4)}", **columns)


def make_model(slug: str = "mlp", owner: User | None = None) -> RegisteredModel:
    owner = owner or make_user()
    project, made = Project.objects.get_or_create(slug="default", defaults={"name": "Default"})
    if made:
        Membership.objects.create(project=project, user=owner, role=Role.ADMIN)
    return RegisteredModel.objects.create(project=project, slug=slug, owner=owner)


def make_version(model: RegisteredModel, files: dict[str, bytes], *, state: str = "validating") -> ModelVersion:
    """A submitted version whose files are received and lie in the staging folder."""
    version = ModelVersion.objects.create(model=model, state=state, author=model.owner)
    for path, content in files.items():
        upload = Upload.objects.create(
            version=version,
            owner=model.owner,
            path=path,
            length=len(content),
            offset=len(content),
            expected_sha256=hashlib.sha256(content).hexdigest(),
            state=UploadState.RECEIVED,
            expires_at=timezone.now() + timedelta(hours=1),
        )
        staged = staging_path(upload.pk)
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(content)
    return version


def make_operation(version: ModelVersion) -> Operation:
    return Operation.objects.create(
        kind="validate_version",
        queue="jobs",
        project=version.model.project,
        subject_type="version",
        subject_id=version.pk,
        actor=version.author,
    )


def make_ready_version(model: RegisteredModel | None = None, width: int = 4) -> ModelVersion:
    """A version that went through the real checks."""
    version = make_version(model or make_model(), {"model.onnx": onnx_models.linear(width=width).SerializeToString()})
    assert work_on(make_operation(version).pk)
    version.refresh_from_db()
    return version


def make_fleet() -> Fleet:
    """The fleet of every node, in an environment that needs no approval."""
    environment = environment_create(
        slug="development", name="Development", requires_approval=False, required_approvals=0, actor=SYSTEM
    )
    return fleet_create(slug="everywhere", name="Everywhere", environment=environment, selector={}, actor=SYSTEM)


def make_node(name: str = "n1", *, url: str = "http://127.0.0.1:1") -> ServingNode:
    """A node that has joined; ``url`` of its admin and metrics port."""
    _row, token = join_token_create(labels={}, actor=SYSTEM)
    node, _own = node_join(
        token=token,
        name=name,
        endpoints={"http": url, "grpc": url, "metrics": f"{url}/metrics", "admin": url},
        admin_secret="admin-secret-of-tests",
        inventory={},
        contract_version=CONTRACT_VERSION,
    )
    return node


def deploy(model: RegisteredModel, fleet: Fleet, **weights: int) -> ChangeOutcome:
    """Deploy versions by number, ``v1=90, v2=10``; the first is live, the others canaries."""
    routes = tuple(
        RouteSpec(version=int(name[1:]), role="canary" if index else "live", weight=weight)
        for index, (name, weight) in enumerate(weights.items())
    )
    return deployment_change(
        model=model, fleet=fleet, spec=DeploymentSpec(routes=routes), actor=Actor.person(model.owner)
    )
