"""Models: their cards, what is said about them, putting them away, deleting them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from registry.domain.plans import DeploymentSpec, RouteSpec
from registry.errors import Conflict, InvalidTransition, PermissionDenied, StaleWrite, ValidationFailed
from registry.models import (
    AuditEvent,
    Blob,
    Deployment,
    Membership,
    ModelCard,
    ModelVersion,
    RegisteredModel,
    Role,
    Transition,
    Upload,
)
from registry.selectors.cards import card_get, card_latest, card_proposal
from registry.selectors.models import ModelFilter, model_impact, model_rows
from registry.services import aliases, approvals, blobs, cards, deployments, models, uploads, versions
from registry.services.configs import config_create
from registry.services.previews import file_text
from tests.console.conftest import Cast, make_cast

SERVE = DeploymentSpec(routes=(RouteSpec(version=1, role="live", weight=100),))


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


def test_a_card_is_kept_in_revisions(cast: Cast) -> None:
    model, bob = cast.version().model, cast.actor("bob")
    first = cards.card_save(model=model, text="# One", actor=bob)
    again = cards.card_save(model=model, text="# One", comment="nothing new", actor=bob)
    second = cards.card_save(model=model, text="# Two", comment="more", seen=1, actor=cast.actor("alice"))
    assert (first, [card.number for card in ModelCard.objects.order_by("number")]) == (again, [1, 2])
    assert (card_latest(model), card_get(model, 1).text, second.author) == (second, "# One", cast.alice)
    with pytest.raises(StaleWrite):
        cards.card_save(model=model, text="# Three", seen=1, actor=bob)
    with pytest.raises(PermissionDenied):
        cards.card_save(model=model, text="# Vera", actor=cast.actor("vera"))
    for bad in ("", "a\0b"):
        with pytest.raises(ValidationFailed):
            cards.card_save(model=model, text=bad, actor=bob)
    assert AuditEvent.objects.filter(action="card.save").count() == 2


def ready_with_readme(cast: Cast, text: bytes) -> ModelVersion:
    version = cast.version()
    cast.store_file(version, "README.md", text)
    cast.store_file(version, "model.onnx", b"weights of " + text)
    versions.version_submit(version=version, actor=cast.actor("bob"))
    accept(cast, version)
    version.refresh_from_db()
    return version


def accept(cast: Cast, version: ModelVersion) -> None:
    from serving_node.contract.digests import manifest_digest
    from tests.console.conftest import SIGNATURE, FileRef

    files = [FileRef(file.path, file.blob.sha256, file.blob.size) for file in version.files.all()]
    versions.version_accept(
        version=version, signature=SIGNATURE, format="onnx", manifest_digest=manifest_digest(files), size=1
    )


def test_a_readme_is_proposed_until_it_or_something_newer_is_the_card(cast: Cast) -> None:
    version = ready_with_readme(cast, "# Grüße".encode())
    model, bob = version.model, cast.actor("bob")
    proposal = card_proposal(model, None)
    assert proposal is not None and file_text(proposal.file, 99) == "# Grüße"
    card = cards.card_save(model=model, text="# Grüße", version=version, actor=bob)
    assert card_proposal(model, card) is None and card.version == version
    other = ready_with_readme(cast, b"# Newer")
    newer = card_proposal(model, card_latest(model))
    assert newer is not None and newer.version == other
    own = cards.card_save(model=model, text="# Our own words", actor=bob)
    assert card_proposal(model, own) is None


def test_what_is_said_about_a_model_is_checked_and_found(cast: Cast) -> None:
    model, bob = cast.version().model, cast.actor("bob")
    links = [{"label": "Paper", "url": "https://example.org"}]
    models.model_update(model=model, task="text-classification", links=links, tags={"team": "nlp"}, actor=bob)
    cast.version("wagtail")

    def found(**wanted: str) -> list[str]:
        return [row.model.slug for row in model_rows(cast.project, wanted=ModelFilter(**wanted))]

    assert found() == ["finch", "wagtail"]
    for wanted in ({"task": "text-classification"}, {"tag": "team"}, {"tag": "team=nlp"}, {"search": "fin"}):
        assert found(**wanted) == ["finch"], wanted
    assert found(tag="team=cv") == found(owner="alice") == found(state="archived") == []
    for bad in ({"task": "No Task"}, {"links": [{"label": "x", "url": "http://a.b"}]}, {"tags": {"": "x"}}):
        with pytest.raises(ValidationFailed):
            models.model_update(model=model, actor=bob, **bad)  # type: ignore[arg-type]


def test_the_owner_gives_a_model_away_and_others_do_not_take_it(cast: Cast) -> None:
    model = cast.version().model
    Membership.objects.create(project=cast.project, user=cast.charlie, role=Role.PUBLISHER)
    with pytest.raises(PermissionDenied):
        models.model_update(model=model, owner=cast.charlie, actor=cast.actor("charlie"))
    model.refresh_from_db()
    models.model_update(model=model, owner=cast.charlie, actor=cast.actor("bob"))
    models.model_update(model=model, owner=cast.bob, actor=cast.actor("alice"))
    Membership.objects.filter(user=cast.charlie).delete()
    with pytest.raises(ValidationFailed):
        models.model_update(model=model, owner=cast.charlie, actor=cast.actor("bob"))
    assert RegisteredModel.objects.get(pk=model.pk).owner == cast.bob


def test_an_archived_model_takes_nothing_new_until_it_is_restored(cast: Cast) -> None:
    version, bob = cast.ready_version(), cast.actor("bob")
    model, dev = version.model, cast.environment("dev", approvals=0)
    models.model_archive(model=model, actor=bob)
    with pytest.raises(Conflict, match="archived"):
        versions.version_create(model=model, actor=bob)
    with pytest.raises(Conflict, match="archived"):
        deployments.deployment_change(model=model, fleet=dev, spec=SERVE, actor=bob)
    with pytest.raises(InvalidTransition):
        models.model_archive(model=model, actor=bob)
    models.model_restore(model=model, actor=bob)
    deployments.deployment_change(model=model, fleet=dev, spec=SERVE, actor=bob)
    with pytest.raises(Conflict, match="serves"):
        models.model_archive(model=model, actor=bob)
    moves = Transition.objects.filter(object_type="registeredmodel").order_by("created_at")
    assert [one.to_state for one in moves] == ["archived", "active"]


def test_a_model_whose_deployment_waits_for_approval_is_not_archived(cast: Cast) -> None:
    version, prod = cast.ready_version(), cast.environment("prod", approvals=1)
    outcome = deployments.deployment_change(model=version.model, fleet=prod, spec=SERVE, actor=cast.actor("bob"))
    with pytest.raises(Conflict, match="approval"):
        models.model_archive(model=version.model, actor=cast.actor("bob"))
    assert outcome.approval is not None
    approvals.approval_withdraw(approval=outcome.approval, actor=cast.actor("bob"))
    models.model_archive(model=version.model, actor=cast.actor("bob"))


def test_deleting_takes_everything_and_releases_what_nobody_else_holds(cast: Cast) -> None:
    shared, alice = cast.ready_version(content=b"shared"), cast.actor("alice")
    model = shared.model
    cast.ready_version("wagtail", content=b"shared")
    own = cast.ready_version(content=b"own")
    pending = uploads.upload_create(version=cast.version(), path="x", length=3, actor=cast.actor("bob"))
    aliases.alias_set(model=model, name="champion", version=own, actor=alice)
    cards.card_save(model=model, text="# Finch", version=own, actor=alice)
    config_create(model=model, body={"backend": "onnxruntime", "max_batch_size": 3}, actor=alice)
    prod = cast.environment("prod", approvals=1)
    asked = deployments.deployment_change(model=model, fleet=prod, spec=SERVE, actor=alice)
    assert asked.approval is not None
    approvals.approval_withdraw(approval=asked.approval, actor=alice)

    with pytest.raises(Conflict, match="Archive"):
        models.model_delete(model=model, actor=alice)
    models.model_archive(model=model, actor=alice)
    with pytest.raises(PermissionDenied):
        models.model_delete(model=model, actor=cast.actor("bob"))
    impact = model_impact(model)
    assert (impact.versions, impact.aliases, impact.card_revisions, impact.deployments) == (3, 1, 1, 1)
    assert impact.bytes_released == len(b"own")
    models.model_delete(model=model, actor=alice)

    assert [one.slug for one in RegisteredModel.objects.all()] == ["wagtail"]
    assert not Deployment.objects.exists() and not Upload.objects.filter(pk=pending.pk).exists()
    assert AuditEvent.objects.get(action="model.delete").before["versions"] == 3
    assert blobs.blobs_collect(timezone.now() + timedelta(days=2)) == 1
    assert [blob.size for blob in Blob.objects.all()] == [len(b"shared")]
