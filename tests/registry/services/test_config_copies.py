"""Going back to a config, copying one to another model, and the difference as text."""

from __future__ import annotations

from typing import Any

import pytest

from registry.errors import PermissionDenied, ValidationFailed
from registry.services import configs
from registry.services.config_copies import config_copy, config_revert, config_text_diff


def store(world: Any, model: Any, batch: int, **more: Any) -> Any:
    body = {"backend": "onnxruntime", "max_batch_size": batch, **more}
    return configs.config_create(model=model, body=body, actor=world.actor(world.carol))


def test_going_back_is_a_new_revision_that_names_the_old_one(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    old, new = store(world, model, 8), store(world, model, 32)
    made = config_revert(model=model, revision=old, actor=world.actor(world.carol))
    assert (made.number, made.digest, made.parent) == (new.number + 1, old.digest, old)
    assert made.comment == f"Back to config {old.number}."
    again = config_revert(model=model, revision=old, actor=world.actor(world.carol))
    assert again == made
    with pytest.raises(PermissionDenied):
        config_revert(model=model, revision=new, actor=world.actor(world.dan))


def test_a_copy_keeps_the_tensors_of_its_own_model(world: Any) -> None:
    source, target = world.model("mlp"), world.model("other")
    world.ready(source)
    world.ready(target)
    wanted = store(world, source, 16, dynamic_batching={"preferred_batch_size": [8]})
    made = config_copy(source=wanted, target=target, actor=world.actor(world.carol))
    assert (made.model, made.parent.model, made.body["name"]) == (target, target, "other")
    assert made.body["max_batch_size"] == 16
    assert made.body["dynamic_batching"] == {"preferred_batch_size": [8]}
    assert made.body["input"] == configs.config_latest(target).body["input"]
    assert made.comment == f"Copied from mlp config {wanted.number}."


def test_a_copy_to_a_model_without_versions_takes_everything(world: Any) -> None:
    source, target = world.model("mlp"), world.model("empty")
    world.ready(source)
    wanted = store(world, source, 16)
    made = config_copy(source=wanted, target=target, comment="to begin with", actor=world.actor(world.carol))
    assert made.body == {**wanted.body, "name": "empty"}
    assert made.comment == "to begin with"


def test_nobody_copies_from_a_project_that_they_do_not_see(world: Any) -> None:
    source, target = world.model("mlp"), world.model("theirs", project=world.other)
    world.ready(source)
    wanted = store(world, source, 16)
    with pytest.raises(PermissionDenied):
        config_copy(source=wanted, target=target, actor=world.actor(world.eve))
    with pytest.raises(PermissionDenied):
        config_copy(source=wanted, target=target, actor=world.actor(world.carol))


def test_a_copy_that_does_not_fit_is_refused(world: Any) -> None:
    source, target = world.model("mlp"), world.model("other")
    world.ready(source)
    wanted = store(world, source, 16, model_warmup=[{"name": "w", "batch_size": 64}])
    world.ready(target)
    type(wanted).objects.filter(pk=wanted.pk).update(body={**wanted.body, "max_batch_size": -1})
    wanted.refresh_from_db()
    with pytest.raises(ValidationFailed):
        config_copy(source=wanted, target=target, actor=world.actor(world.carol))


def test_the_difference_as_text(world: Any) -> None:
    model = world.model("mlp")
    world.ready(model)
    old, new = store(world, model, 8), store(world, model, 32)
    lines = config_text_diff(old, new).splitlines()
    assert lines[:2] == [f"--- mlp config {old.number}", f"+++ mlp config {new.number}"]
    assert "-max_batch_size: 8" in lines
    assert "+max_batch_size: 32" in lines
    assert config_text_diff(old, old) == ""
