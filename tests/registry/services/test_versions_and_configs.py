from __future__ import annotations

from typing import Any

import pytest

from registry.errors import Conflict, Immutable, InvalidTransition, NotFound, PermissionDenied, ValidationFailed
from registry.models import ConfigRevision, Membership, ModelVersion, RegisteredModel
from registry.selectors import configs as config_selectors
from registry.selectors.audit import audit_of, audit_visible_to, transitions_of
from registry.selectors.models import ModelFilter, model_get, model_overview, model_rows, models_visible_to
from registry.selectors.versions import (
    version_by_number,
    version_detail,
    version_get,
    version_rows,
    versions_shown,
    versions_visible_to,
)
from registry.services import configs, models, versions
from registry.services.checks import check_finish, check_start
from serving_node.contract.digests import config_digest
from serving_node.contract.model_config import parse_json


def test_names_are_judged(world: Any) -> None:
    for slug in ("a b", "../x", "-x", "x" * 81, "ä"):
        with pytest.raises(ValidationFailed):
            world.model(slug)
    world.model("mlp")
    with pytest.raises(Conflict):
        world.model("mlp")
    assert world.model("mlp", project=world.other).slug == "mlp"
    with pytest.raises(PermissionDenied):
        world.model("mine", user=world.dan)


def test_get_or_create(world: Any) -> None:
    actor = world.actor(world.carol)
    model, made = models.model_get_or_create(project=world.project, slug="mlp", actor=actor)
    assert made
    assert models.model_get_or_create(project=world.project, slug="mlp", actor=actor) == (model, False)
    viewer = world.actor(world.dan)
    assert models.model_get_or_create(project=world.project, slug="mlp", actor=viewer) == (model, False)
    with pytest.raises(PermissionDenied):
        models.model_get_or_create(project=world.project, slug="new", actor=viewer)
    assert models.model_update(model=model, tags={"team": "a"}, actor=actor).tags == {"team": "a"}


def test_numbers_count_ready_versions_only(world: Any) -> None:
    model = world.model()
    first = world.ready(model)
    abandoned = versions.version_create(model=model, actor=world.actor(world.carol))
    versions.version_abandon(version=abandoned, actor=world.actor(world.carol))
    second = world.ready(model)
    assert (first.number, second.number) == (1, 2)
    assert ModelVersion.objects.get(pk=abandoned.pk).number is None
    assert [row.version.number for row in version_rows([*versions_shown(model)])] == [2, 1]


def test_accepting_twice_gives_one_number(world: Any) -> None:
    from serving_node.contract.signature import ModelSignature

    version = world.ready(world.model())
    number = versions.version_accept(
        version=version,
        signature=ModelSignature.from_json(version.signature),
        format="onnx",
        manifest_digest=version.manifest_digest,
        size=1,
    )
    assert number == version.number
    assert RegisteredModel.objects.get(pk=version.model_id).next_version == 2


def test_the_first_version_brings_a_config(world: Any) -> None:
    model = world.model("mlp")
    version = world.ready(model)
    config = ConfigRevision.objects.get(model=model)
    assert (config.number, config.author, config.source_format) == (1, version.author, "generated")
    assert config.body["name"] == "mlp"
    assert config.body["backend"] == "onnxruntime"
    assert config_digest(parse_json(config.body)) == config.digest
    world.ready(model)
    assert ConfigRevision.objects.filter(model=model).count() == 1


def test_a_finished_version_takes_no_files(world: Any) -> None:
    version = world.ready(world.model())
    with pytest.raises(Immutable):
        versions.version_add_file(version=version, path="more", blob=world.blob(b"more"))
    with pytest.raises(InvalidTransition):
        versions.version_abandon(version=version, actor=world.actor(world.carol))


def test_archive_restore_quarantine(world: Any) -> None:
    version = world.ready(world.model())
    carol, alice = world.actor(world.carol), world.actor(world.alice)
    versions.version_archive(version=version, actor=carol)
    versions.version_restore(version=version, actor=carol)
    with pytest.raises(PermissionDenied):
        versions.version_quarantine(version=version, reason="bad", actor=carol)
    versions.version_quarantine(version=version, reason="leaks", actor=alice)
    with pytest.raises(PermissionDenied):
        versions.version_restore(version=version, actor=carol)
    versions.version_restore(version=version, actor=alice)
    states = [row.to_state for row in transitions_of("modelversion", version.id)]
    assert states == ["ready", "archived", "ready", "quarantined", "ready"]


def test_checks_are_shown_while_they_run(
    world: Any, topics: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    version = world.ready(world.model())
    with django_capture_on_commit_callbacks(execute=True):
        check = check_start(version=version, kind="format")
    assert f"version:{version.id}" in topics
    assert version_detail(version).checks[0].verdict == "running"
    check_finish(check=check, verdict="warn", summary="old opset", evidence={"opset": 7})
    again = check_start(version=version, kind="format")
    assert again.pk == check.pk
    with pytest.raises(ValidationFailed):
        check_finish(check=check, verdict="great", summary="")
    check_finish(check=again, verdict="pass", summary="")
    assert version_rows([version])[0].checks_passed == 1


def test_others_see_nothing(world: Any) -> None:
    model = world.model("mlp")
    version = world.ready(model)
    eve = world.actor(world.eve)
    assert not models_visible_to(eve).exists()
    assert not versions_visible_to(eve).exists()
    assert not config_selectors.configs_visible_to(eve).exists()
    assert not audit_visible_to(eve).filter(object_id=str(version.id)).exists()
    assert audit_visible_to(world.actor(world.dan)).filter(object_id=str(version.id)).exists()
    for call in (lambda: version_get(eve, version.id), lambda: model_get(eve, "team", "mlp")):
        with pytest.raises(NotFound):
            call()
    assert version_get(world.actor(world.dan), str(version.id)) == version
    with pytest.raises(NotFound):
        version_get(world.actor(world.dan), "no-uuid")
    assert version_by_number(model, 1) == version
    with pytest.raises(NotFound):
        version_by_number(model, 2)


def test_site_events_are_for_site_administrators(world: Any) -> None:
    world.node()
    kinds = {event.action for event in audit_visible_to(world.actor(world.alice))}
    assert "node.join" in kinds
    assert "node.join" not in {event.action for event in audit_visible_to(world.actor(world.carol))}


def test_a_list_of_models_takes_the_same_number_of_queries(world: Any, django_assert_num_queries: Any) -> None:
    for _number in range(3):
        world.ready(world.model())
    with django_assert_num_queries(4):
        rows = model_rows(world.project)
        assert [row.version_count for row in rows] == [1, 1, 1]
        assert rows[0].latest_version is not None
    assert len(model_rows(world.project, wanted=ModelFilter(search="model-1"))) == 1
    overview = model_overview(rows[0].model)
    assert overview.latest_version == rows[0].latest_version


GOOD = {"max_batch_size": 16, "dynamic_batching": {"max_queue_delay_microseconds": 500}, "backend": "onnxruntime"}


def test_checking_stores_nothing(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    report = configs.config_check(model=model, body=GOOD)
    assert report.ok, report.errors
    assert report.body is not None
    assert report.body["name"] == "mlp"
    assert "max_batch_size: 16" in report.pbtxt
    assert [one["name"] for one in report.body["input"]] == ["x"]
    assert ConfigRevision.objects.filter(model=model).count() == 1


def test_text_and_json_give_the_same_digest(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    first = configs.config_check(model=model, body=GOOD)
    assert configs.config_check(model=model, text=first.pbtxt, format="pbtxt").digest == first.digest
    assert configs.config_pbtxt(first.body or {}) == first.pbtxt


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"text": "max_batch_size: many", "format": "pbtxt"}, ""),
        ({"text": "{not json", "format": "json"}, ""),
        ({"body": {"colour": "red"}}, "colour"),
        ({"body": {**GOOD, "max_batch_size": -1}}, "max_batch_size"),
        ({"body": {**GOOD, "input": [{"name": "z", "data_type": "TYPE_FP32", "dims": [16]}]}}, "input"),
        ({"text": 'name: "a\0"', "format": "pbtxt"}, ""),
    ],
)
def test_bad_configs_name_the_field(world: Any, arguments: dict[str, Any], field: str) -> None:
    model = world.model("mlp")
    world.ready(model)
    report = configs.config_check(model=model, **arguments)
    assert not report.ok
    assert report.errors[0]["field"].startswith(field)
    assert report.errors[0]["message"]
    with pytest.raises(ValidationFailed) as caught:
        configs.config_create(model=model, actor=world.actor(world.carol), **arguments)
    assert caught.value.errors == list(report.errors)


def test_the_same_content_is_the_same_revision(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    carol = world.actor(world.carol)
    second = configs.config_create(model=model, body=GOOD, comment="bigger", actor=carol)
    assert (second.number, second.parent and second.parent.number) == (2, 1)
    assert configs.config_create(model=model, body=GOOD, actor=carol) == second
    third = configs.config_create(model=model, body={**GOOD, "max_batch_size": 32}, actor=carol)
    assert third.number == 3
    changes = configs.config_diff(second, third)
    assert [(change.path, change.before, change.after) for change in changes] == [("max_batch_size", 16, 32)]
    assert configs.config_diff(second, second) == []
    assert config_selectors.config_by_number(model, 0) == third
    assert config_selectors.config_by_number(model, 2) == second
    with pytest.raises(NotFound):
        config_selectors.config_by_number(model, 9)
    assert audit_of("configrevision", third.id).count() == 1


def test_viewers_write_no_configs(world: Any) -> None:
    model = world.model()
    world.ready(model)
    Membership.objects.filter(user=world.carol).update(role="viewer")
    with pytest.raises(PermissionDenied):
        configs.config_create(model=model, body=GOOD, actor=world.actor(world.carol))
