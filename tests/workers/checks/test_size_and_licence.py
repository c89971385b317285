"""Size and licence of versions against the policies of their project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from registry.errors import PermissionDenied, ValidationFailed
from registry.models import AuditEvent, Check, ModelVersion, Project, RegisteredModel
from registry.services.cards import card_save
from registry.services.checks import check_rerun
from registry.services.policies import licence_policy_set, size_limits_set
from registry.services.versions import version_create
from tests.workers import factories
from tests.workers.checks import onnx_models
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = onnx_models.linear().SerializeToString()
CARD = b"---\nlicense: %s\n---\n# A model\n"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, settings: Any) -> None:
    settings.STAGING_DIR = tmp_path / "staging"
    settings.ARTIFACT_STORE_URL = (tmp_path / "artifacts").as_uri()


@pytest.fixture
def project() -> Project:
    return factories.make_model().project


def checked(files: dict[str, bytes], **source: str) -> ModelVersion:
    version = factories.make_version(RegisteredModel.objects.get(), files)
    ModelVersion.objects.filter(pk=version.pk).update(source=source)
    work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    return version


def row_of(version: ModelVersion, kind: str) -> Check:
    return Check.objects.get(version=version, kind=kind)


def with_metadata(**values: str) -> bytes:
    model = onnx_models.linear()
    onnx.helper.set_model_props(model, values)
    return bytes(model.SerializeToString())


def test_a_size_within_all_limits_passes_with_its_figures(project: Project) -> None:
    row = row_of(checked({"model.onnx": MODEL, "a.txt": b"abc"}), "size")
    assert row.verdict == "pass" and row.summary.startswith("2 files, ")
    assert row.evidence["found"] == {"total_bytes": len(MODEL) + 3, "file_bytes": len(MODEL), "files": 2}
    assert row.evidence["largest"] == "model.onnx" and row.evidence["limits"]["files"] == {"warn": 1000, "fail": 10_000}


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"total_bytes": {"fail": 100}}, "in all, more than 100 bytes"),
        ({"file_bytes": {"fail": 100}}, "model.onnx has"),
        ({"files": {"fail": 1}}, "2 files, more than 1"),
    ],
)
def test_a_version_above_a_limit_is_refused(project: Project, limits: dict[str, Any], sentence: str) -> None:
    size_limits_set(project=project, limits=limits, actor=factories.SYSTEM)
    version = checked({"model.onnx": MODEL, "a.txt": b"abc"})
    assert version.state == "rejected" and sentence in version.state_reason
    assert row_of(version, "size").verdict == "fail"


def test_above_a_threshold_there_is_a_warning_and_the_site_has_the_last_word(project: Project, settings: Any) -> None:
    size_limits_set(project=project, limits={"files": {"warn": 1}}, actor=factories.SYSTEM)
    version = checked({"model.onnx": MODEL, "a.txt": b"abc"})
    assert version.state == "ready" and row_of(version, "size").verdict == "warn"
    assert "2 files, more than 1" in version.state_reason
    settings.MAX_VERSION_BYTES = 10
    assert checked({"model.onnx": MODEL}).state == "rejected"


@pytest.mark.parametrize(
    ("files", "source", "where", "licence"),
    [
        ({}, {"licence": "mit"}, "source.licence", "MIT"),
        ({"README.md": CARD % b"apache-2.0"}, {}, "README.md", "Apache-2.0"),
        ({"README.md": b"---\nlicense: other\nlicense_name: llama3\n---\n"}, {}, "README.md", "LicenseRef-llama3"),
        ({"README.md": b"---\nlicense: [mit, bsd-3-clause]\n---\n"}, {}, "README.md", "MIT AND BSD-3-Clause"),
        ({"model.onnx": with_metadata(model_license="BSD-3-Clause")}, {}, "metadata_props", "BSD-3-Clause"),
        ({"MLmodel": b"flavors: {onnx: {data: model.onnx}}\nmetadata: {license: MPL-2.0}\n"}, {}, "MLmodel", "MPL-2.0"),
        ({"LICENSE": b"   Apache License\n     Version 2.0, January 2004\n"}, {}, "LICENSE", "Apache-2.0"),
        ({"docs/COPYING": b"# SPDX-License-Identifier: MIT OR Zlib\n"}, {}, "docs/COPYING", "MIT OR Zlib"),
        ({"LICENSE-MIT.txt": b"whatever"}, {}, "LICENSE-MIT.txt", "MIT"),
    ],
    ids=["source", "card", "card_other", "card_list", "onnx", "mlflow", "title", "tag", "name"],
)
def test_where_licences_are_stated(
    project: Project, files: dict[str, bytes], source: dict[str, str], where: str, licence: str
) -> None:
    row = row_of(checked({"model.onnx": MODEL, **files}, **source), "licence")
    assert row.evidence["licence"] == licence
    assert [one["where"] for one in row.evidence["statements"]] == [where]
    assert row.verdict == ("warn" if "LicenseRef" in licence else "pass")


def test_the_card_of_the_model_counts_where_the_version_brings_none(project: Project) -> None:
    model = RegisteredModel.objects.get()
    card_save(model=model, text=(CARD % b"mit").decode(), actor=factories.Actor.person(model.owner))
    row = row_of(checked({"model.onnx": MODEL}), "licence")
    assert (row.verdict, row.evidence["statements"][0]["where"]) == ("pass", "card")


def test_what_a_policy_forbids_is_refused_and_what_it_does_not_know_warns(project: Project) -> None:
    policy = {"allowed": ["MIT"], "forbidden": ["GPL-*"], "unlisted": "review", "missing": "refuse"}
    licence_policy_set(project=project, policy=policy, actor=factories.SYSTEM)
    assert checked({"model.onnx": MODEL}, licence="MIT").state == "ready"
    refused = checked({"model.onnx": MODEL}, licence="GPL-3.0")
    assert refused.state == "rejected" and "does not take this licence: GPL-3.0-only" in refused.state_reason
    doubtful = checked({"model.onnx": MODEL}, licence="Zlib")
    assert doubtful.state == "ready" and row_of(doubtful, "licence").verdict == "warn"
    silent = checked({"model.onnx": MODEL})
    assert silent.state == "rejected" and "no version without a licence" in silent.state_reason
    # Both statements hold, whatever the uploader says.
    both = checked({"model.onnx": MODEL, "LICENSE": b"GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June"}, licence="MIT")
    assert both.state == "rejected"


def test_several_and_unreadable_licences_warn(project: Project) -> None:
    several = row_of(checked({"model.onnx": MODEL, "README.md": CARD % b"apache-2.0"}, licence="MIT"), "licence")
    assert several.verdict == "warn" and "several licences: MIT, Apache-2.0" in several.summary
    unread = row_of(checked({"model.onnx": MODEL, "README.md": CARD % b"free for friends"}), "licence")
    assert unread.verdict == "warn" and "free for friends" in unread.summary
    assert row_of(checked({"model.onnx": MODEL, "LICENSE": b"You may look at it."}), "licence").verdict == "warn"


def test_without_statement_and_policy_there_is_no_check_until_somebody_asks(project: Project) -> None:
    version = checked({"model.onnx": MODEL})
    assert not Check.objects.filter(version=version, kind="licence").exists()
    work_on(check_rerun(version=version, kind="licence", actor=factories.SYSTEM).pk)
    assert row_of(version, "licence").verdict == "warn"
    licence_policy_set(project=project, policy={"missing": "accept"}, actor=factories.SYSTEM)
    work_on(check_rerun(version=version, kind="licence", actor=factories.SYSTEM).pk)
    assert row_of(version, "licence").verdict == "pass"
    version.refresh_from_db()
    assert version.state == "ready"


def test_a_hostile_card_states_nothing(project: Project) -> None:
    merges = [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)]
    bomb = "\n".join(["---", "a0: &a0 {x: 1}", *merges, "---"])
    version = checked({"model.onnx": MODEL, "README.md": bomb.encode(), "LICENSE": b"\xff\xfe\x00" * 100})
    assert version.state == "ready" and row_of(version, "licence").verdict == "warn"


def test_only_administrators_set_policies_and_every_change_is_told(project: Project) -> None:
    other = factories.Actor.person(factories.make_user())
    with pytest.raises(PermissionDenied):
        size_limits_set(project=project, limits={}, actor=other)
    with pytest.raises(PermissionDenied):
        licence_policy_set(project=project, policy={}, actor=other)
    with pytest.raises(ValidationFailed, match="SPDX lists no licence"):
        licence_policy_set(project=project, policy={"allowed": ["MITT"]}, actor=factories.SYSTEM)
    with pytest.raises(ValidationFailed, match="whole number"):
        size_limits_set(project=project, limits={"files": {"fail": -1}}, actor=factories.SYSTEM)
    size_limits_set(project=project, limits={"files": {"fail": 5}}, actor=factories.SYSTEM)
    size_limits_set(project=project, limits={"files": {"fail": 5}}, actor=factories.SYSTEM)
    licence_policy_set(project=project, policy={"missing": "refuse"}, actor=factories.SYSTEM)
    licence_policy_set(project=project, policy={}, actor=factories.SYSTEM)
    events = AuditEvent.objects.filter(action__in=["project.size_limits", "project.licence_policy"])
    assert [event.action for event in events.order_by("created_at")] == [
        "project.size_limits",
        "project.licence_policy",
        "project.licence_policy",
    ]
    project.refresh_from_db()
    assert (project.size_limits, project.licence_policy) == ({"files": {"fail": 5}}, {})


def test_a_source_names_a_licence_or_is_refused(project: Project) -> None:
    model = RegisteredModel.objects.get()
    actor = factories.Actor.person(model.owner)
    assert version_create(model=model, source={"licence": "MIT"}, actor=actor).source == {"licence": "MIT"}
    with pytest.raises(ValidationFailed, match="no licence expression"):
        version_create(model=model, source={"licence": "free for all"}, actor=actor)
