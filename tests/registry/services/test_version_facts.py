"""Metrics, lineage, ranking and comparison of versions."""

from __future__ import annotations

import pytest

from registry.errors import Immutable, PermissionDenied, ValidationFailed
from registry.models import AuditEvent, ModelVersion, Project
from registry.selectors.version_facts import compare, lineage_of, metric_names, versions_ranked
from registry.services import versions
from tests.console.conftest import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def test_metrics_and_metadata_of_a_ready_version_change_and_nothing_else(cast: Cast) -> None:
    version, bob = cast.ready_version(), cast.actor("bob")
    digest = version.manifest_digest
    versions.version_annotate(version=version, metrics={"accuracy": 0.9}, actor=bob)
    versions.version_annotate(version=version, metadata={"seed": 7}, actor=bob)
    versions.version_annotate(version=version, metadata={"seed": 7}, actor=bob)  # nothing changes
    stored = ModelVersion.objects.get(pk=version.pk)
    assert (stored.metrics, stored.metadata, stored.manifest_digest) == ({"accuracy": 0.9}, {"seed": 7}, digest)
    event = AuditEvent.objects.filter(action="version.annotate").order_by("created_at").first()
    assert event is not None and event.before == {"metadata": {}, "metrics": {}}
    assert AuditEvent.objects.filter(action="version.annotate").count() == 2
    with pytest.raises(PermissionDenied):
        versions.version_annotate(version=version, metrics={}, actor=cast.actor("vera"))
    for bad in ({"metrics": {"a": float("nan")}}, {"metadata": {"x": "y" * 70_000}}):
        with pytest.raises(ValidationFailed):
            versions.version_annotate(version=version, actor=bob, **bad)  # type: ignore[arg-type]
    gone = cast.version()
    versions.version_abandon(version=gone, actor=bob)
    with pytest.raises(Immutable):
        versions.version_annotate(version=gone, metrics={}, actor=bob)


def test_lineage_goes_both_ways_and_stays_in_the_project(cast: Cast) -> None:
    base, bob = cast.ready_version("base"), cast.actor("bob")
    child = cast.ready_version()
    ModelVersion.objects.filter(pk=child.pk).update(parent=base)
    child.refresh_from_db()
    grandchild = versions.version_create(model=child.model, parent=child, actor=bob)
    assert lineage_of(grandchild).ancestors == (child, base)
    assert lineage_of(child).children == (grandchild,) and lineage_of(base).children == (child,)
    for stranger in (cast.version("unnumbered"), _elsewhere(cast)):
        with pytest.raises(ValidationFailed) as refused:
            versions.version_create(model=child.model, parent=stranger, actor=bob)
        assert refused.value.errors[0]["field"] == "parent"


def _elsewhere(cast: Cast) -> ModelVersion:
    version = cast.ready_version("moved")
    version.model.project = Project.objects.get(slug="elsewhere")
    return version


def test_versions_rank_by_a_metric(cast: Cast) -> None:
    bob = cast.actor("bob")
    made = [cast.ready_version(content=str(number).encode()) for number in range(4)]
    for version, value in zip(made, (0.5, 10, -1e-3, None), strict=True):
        if value is not None:
            versions.version_annotate(version=version, metrics={"f1 score": value}, actor=bob)
    model = made[0].model

    def ranked(is_lowest: bool) -> list[int | None]:
        return [one.number for one in versions_ranked(model, "f1 score", is_lowest=is_lowest)]

    assert (ranked(False), ranked(True)) == ([2, 1, 3], [3, 1, 2])
    assert metric_names(model) == ["f1 score"]
    assert [*versions_ranked(model, "it's'; --", is_lowest=False)] == []


def test_what_differs_between_two_versions(cast: Cast) -> None:
    bob = cast.actor("bob")
    first, second = cast.ready_version(content=b"one"), cast.ready_version(content=b"two")
    versions.version_annotate(version=first, metrics={"accuracy": 0.5, "loss": 1}, actor=bob)
    versions.version_annotate(version=second, metrics={"accuracy": 0.75}, metadata={"seed": 2}, actor=bob)
    found = compare(first, second)
    assert {(one.name, one.change) for one in found.metrics} == {("accuracy", 0.25), ("loss", None)}
    assert [one.name for one in found.files] == ["model.onnx"] and found.same_files == 0
    assert [(one.name, one.before, one.after) for one in found.metadata] == [("seed", None, 2)]
    assert found.signature == found.source == ()
    assert compare(first, first).files == () and compare(first, first).same_files == 1
    with pytest.raises(ValidationFailed):
        compare(first, cast.ready_version("wagtail"))
