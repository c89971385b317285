"""What an ensemble calls, from the versions of its project."""

from __future__ import annotations

from typing import Any

import pytest

from registry.models import ConfigRevision, ModelVersion, RegisteredModel
from tests.workers import factories
from workers.checks.parts import MAX_PARTS, parts_of
from workers.checks.verdicts import NotChecked

pytestmark = pytest.mark.django_db


def model(slug: str, *calls: tuple[str, int], versions: int = 1) -> tuple[ModelVersion, ConfigRevision]:
    """A model whose newest config calls others."""
    made: RegisteredModel = factories.make_model(slug)
    body: dict[str, Any] = {"name": slug}
    if calls:
        body["ensemble_scheduling"] = {"step": [{"model_name": name, "model_version": one} for name, one in calls]}
    config = ConfigRevision.objects.create(model=made, number=1, body=body, digest="0" * 64, author=made.owner)
    rows = [
        ModelVersion.objects.create(model=made, number=number, state="ready", author=made.owner)
        for number in range(1, versions + 1)
    ]
    return rows[-1], config


def names(version: ModelVersion, config: ConfigRevision) -> list[str]:
    return sorted(f"{part.name} {part.version.number}" for part in parts_of(version, config, lambda *_: ""))


def test_the_newest_or_the_named_version_and_what_it_calls_in_turn() -> None:
    model("a", versions=3)
    model("b", ("a", 2))
    assert names(*model("c", ("a", -1), ("b", -1))) == ["a 2", "a 3", "b 1"]
    assert names(*model("d")) == []


def test_a_circle_ends() -> None:
    model("x", ("y", -1))
    assert names(*model("y", ("x", -1))) == ["x 1", "y 1"]


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ([("none", -1)], "of which no version is ready"),
        ([("a", 9)], "version 9 of “a”"),
        ([("model", -1)], "calls a model “model”"),
    ],
    ids=["missing", "version", "own_name"],
)
def test_what_is_not_there_is_said(calls: list[tuple[str, int]], sentence: str) -> None:
    model("a")
    with pytest.raises(NotChecked, match=sentence):
        names(*model("e", *calls))


def test_a_part_that_cannot_be_tried_and_too_many_of_them() -> None:
    model("a")
    version, config = model("f", ("a", -1))
    with pytest.raises(NotChecked, match="“a”, which is not tried here: It is decoupled"):
        parts_of(version, config, lambda *_: "It is decoupled.")
    for number in range(MAX_PARTS + 1):
        model(f"n{number}")
    with pytest.raises(NotChecked, match="more than 20"):
        names(*model("g", *((f"n{number}", -1) for number in range(MAX_PARTS + 1))))
