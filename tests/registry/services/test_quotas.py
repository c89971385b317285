"""Quotas: what counts, what is refused, who sets them."""

from __future__ import annotations

import pytest

from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.errors import PermissionDenied, QuotaExceeded, ValidationFailed
from registry.models import AuditEvent, Project
from registry.selectors.quotas import quotas_of
from registry.services import deployments, quotas, uploads, versions
from tests.console.conftest import Cast, join_node, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def limit(cast: Cast, **limits: int) -> None:
    quotas.quota_set(project=cast.project, actor=cast.actor("alice"), **limits)


def used(cast: Cast) -> dict[str, int]:
    return {quota.name: quota.used for quota in quotas_of(Project.objects.get(pk=cast.project.pk))}


def test_versions_count_until_they_are_given_up(cast: Cast) -> None:
    limit(cast, versions=2)
    cast.ready_version()
    second = cast.version()
    with pytest.raises(QuotaExceeded, match=r"all of the 2 versions.*administrator"):
        cast.version()
    versions.version_abandon(version=second, actor=cast.actor("bob"))
    assert used(cast)["versions"] == 1
    cast.version()


def test_bytes_count_with_every_version_and_while_they_come(cast: Cast) -> None:
    limit(cast, bytes=10)
    cast.ready_version(content=b"12345")
    version = cast.version()
    upload = uploads.upload_create(version=version, path="a", length=4, actor=cast.actor("bob"))
    assert used(cast)["bytes"] == 9
    with pytest.raises(QuotaExceeded, match="room for 1 bytes"):
        uploads.upload_create(version=version, path="b", length=2, actor=cast.actor("bob"))
    sha256 = cast.project.models.get().versions.get(number=1).files.get().blob.sha256
    with pytest.raises(QuotaExceeded):
        versions.version_attach_blob(version=version, path="b", sha256=sha256, actor=cast.actor("bob"))
    uploads.upload_terminate(upload_id=upload.pk, actor=cast.actor("bob"))
    versions.version_attach_blob(version=version, path="b", sha256=sha256, actor=cast.actor("bob"))
    assert used(cast)["bytes"] == 10


def test_nodes_count_of_the_fleets_that_it_deploys_on(cast: Cast) -> None:
    version, bob = cast.ready_version(), cast.actor("bob")
    one, two = cast.environment("one", approvals=0), cast.environment("two", approvals=0)
    for number in range(2):
        join_node(cast, f"one-{number}", environment="one")
    join_node(cast, "two-0", environment="two")
    spec = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))
    limit(cast, nodes=2)
    deployments.deployment_change(model=version.model, fleet=one, spec=spec, actor=bob)
    assert used(cast)["nodes"] == 2
    with pytest.raises(QuotaExceeded, match="3 nodes"):
        deployments.deployment_change(model=version.model, fleet=two, spec=spec, actor=bob)
    other = cast.ready_version("wagtail")
    deployments.deployment_change(model=other.model, fleet=one, spec=spec, actor=bob)  # the same nodes
    limit(cast, nodes=3)
    deployments.deployment_change(model=version.model, fleet=two, spec=spec, actor=bob)


def test_only_site_administrators_set_them(cast: Cast) -> None:
    with pytest.raises(PermissionDenied):
        quotas.quota_set(project=cast.project, versions=1, actor=cast.actor("bob"))
    for bad in ({"versions": -1}, {"bytes": 2**60}):
        with pytest.raises(ValidationFailed):
            limit(cast, **bad)
    limit(cast, versions=5)
    limit(cast, versions=5)
    event = AuditEvent.objects.get(action="project.quotas")
    assert (event.before["versions"], event.after["versions"]) == (100_000, 5)
