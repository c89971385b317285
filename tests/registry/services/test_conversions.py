"""Reports of conversions: stored with the version, judged here, lineage found by content."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from registry.errors import Immutable, PermissionDenied, ValidationFailed
from registry.models import AuditEvent, Check, ModelVersion, VersionState
from registry.services import versions
from registry.services.conversions import conversion_attach
from serving_node.contract.conversion import (
    ConversionReport,
    ConversionVerdict,
    ConvertedFile,
    OutputComparison,
    SampleInputs,
    Tolerance,
)

PARENT = b"the first file"


def report(content: bytes = PARENT, **output: Any) -> ConversionReport:
    first = ConvertedFile("first.onnx", hashlib.sha256(content).hexdigest(), len(content), "onnx")
    second = ConvertedFile("half.onnx", "b" * 64, 5, "onnx")
    figures = OutputComparison("y", "FP32", **{"elements": 8, "worst": 0.25, **output})
    return ConversionReport(
        first,
        second,
        ("fp16",),
        Tolerance(0.01, 0.001),
        SampleInputs((1, 7), 0),
        (figures,),
        notes=("A note.",),
        verdict=ConversionVerdict.PASS,  # what the sender claims
    )


def fresh(world: Any, model: Any) -> ModelVersion:
    return versions.version_create(model=model, source={"git_sha": "abc1234"}, actor=world.actor(world.carol))


def attach(world: Any, version: ModelVersion, sent: ConversionReport) -> Check:
    return conversion_attach(version=version, report=sent, actor=world.actor(world.carol))


def test_a_report_becomes_a_check_and_names_the_parent(world: Any) -> None:
    model = world.model("finch")
    world.ready(model, content=PARENT)
    newest = world.ready(model, content=PARENT)
    world.ready(model)
    version = fresh(world, model)
    check = attach(world, version, report())
    assert (check.kind, check.verdict, check.log) == ("conversion", "pass", "A note.")
    assert "rows compared: 8" in check.summary
    version.refresh_from_db()
    assert version.source["git_sha"] == "abc1234"
    assert version.source["converted_from"] == {
        "file": "first.onnx",
        "sha256": hashlib.sha256(PARENT).hexdigest(),
        "model": "finch",
        "version": newest.number,
    }
    assert check.evidence["converted_from"] == version.source["converted_from"]
    event = AuditEvent.objects.get(action="version.conversion")
    assert event.after["verdict"] == "pass"


def test_the_parent_may_be_of_another_model_of_the_project_and_no_other(world: Any) -> None:
    elsewhere = world.model("elsewhere", project=world.other)
    world.ready(elsewhere, content=PARENT)
    version = fresh(world, world.model("half"))
    attach(world, version, report())
    assert "version" not in version.source["converted_from"]
    world.ready(world.model("full"), content=PARENT)
    attach(world, version, report())
    assert (version.source["converted_from"]["model"], version.source["converted_from"]["version"]) == ("full", 1)


@pytest.mark.parametrize(
    ("output", "verdict", "summary"),
    [
        ({"worst": 4.0, "differing": 1}, "warn", "the largest difference is 4 of what is allowed"),
        ({"worst": 40.0, "differing": 1}, "fail", "the largest difference is 40 of what is allowed"),
        ({"non_finite": 2}, "fail", "2 of 8 elements of “y” are not equal"),
        ({"is_exact": True, "differing": 3}, "fail", "3 of 8 elements of “y” are not equal"),
        ({"problem": "has the shape [1] instead of [2]"}, "fail", "output “y” has the shape [1] instead of [2]."),
    ],
)
def test_the_verdict_follows_from_the_figures_not_from_the_claim(
    world: Any, output: dict[str, Any], verdict: str, summary: str
) -> None:
    check = attach(world, fresh(world, world.model()), report(**output))
    assert check.verdict == verdict
    assert summary in check.summary
    assert check.evidence["report"]["verdict"] == verdict


def test_a_report_without_outputs_proves_nothing(world: Any) -> None:
    empty = dataclasses.replace(report(), outputs=())
    check = attach(world, fresh(world, world.model()), empty)
    assert (check.verdict, check.summary) == ("fail", "first.onnx (fp16): no output was compared.")


def test_lineage_cannot_be_claimed_without_a_report(world: Any) -> None:
    source = {"converted_from": {"model": "finch", "version": 1}}
    with pytest.raises(ValidationFailed):
        versions.version_create(model=world.model(), source=source, actor=world.actor(world.carol))


def test_only_before_the_version_is_submitted_and_only_by_publishers(world: Any) -> None:
    version = fresh(world, world.model())
    with pytest.raises(PermissionDenied):
        conversion_attach(version=version, report=report(), actor=world.actor(world.dan))
    ModelVersion.objects.filter(pk=version.pk).update(state=VersionState.VALIDATING)
    with pytest.raises(Immutable):
        attach(world, version, report())
    assert not Check.objects.filter(version=version).exists()
