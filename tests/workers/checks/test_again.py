"""Checks of versions that have their number, made again without a sandbox."""

from __future__ import annotations

from typing import Any

import pytest

from registry.domain.actors import Actor
from registry.models import Check, ModelVersion, Operation
from registry.services.checks import check_rerun
from tests.workers import factories
from workers.checks.again import check_version
from workers.locks.leases import Lease, LeaseLost
from workers.sandbox import SandboxUnavailable
from workers.tasks.operations import work_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def version() -> ModelVersion:
    return factories.make_ready_version()


def rerun(version: ModelVersion, kind: str) -> Operation:
    return check_rerun(version=version, kind=kind, actor=Actor.system("tests"))


def row(version: ModelVersion, kind: str) -> Check:
    return Check.objects.get(version=version, kind=kind)


def test_only_the_one_that_was_asked_for_is_written(version: ModelVersion) -> None:
    before = {check.kind: check.finished_at for check in Check.objects.filter(version=version)}
    operation = rerun(version, "config")
    assert work_on(operation.pk)
    after = {check.kind: check.finished_at for check in Check.objects.filter(version=version)}
    assert [kind for kind in before if before[kind] != after[kind]] == ["config"]
    assert row(version, "config").summary == "Config 1 fits."
    operation.refresh_from_db()
    assert operation.result["verdicts"] == {"config": "pass"}


def test_a_check_behind_one_that_fails_is_an_error_and_the_version_stays(version: ModelVersion) -> None:
    version.files.update(path="weights.bin")
    version.files.get().blob.files.update(path="weights/deep.bin")
    assert work_on(rerun(version, "config").pk)
    check = row(version, "config")
    assert check.verdict == "error"
    assert check.summary.startswith("Another check fails before this one can be made:")
    version.refresh_from_db()
    assert version.state == "ready"


def test_without_a_sandbox_nothing_passes(version: ModelVersion) -> None:
    assert work_on(rerun(version, "smoke").pk)
    assert (row(version, "smoke").verdict, row(version, "smoke").summary) == (
        "error",
        "Nothing is run in a sandbox here (FLOTILLA_SANDBOX).",
    )


def test_a_sandbox_that_cannot_be_had_is_an_error(
    version: ModelVersion, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise SandboxUnavailable("The sandbox cannot be had on this host, so nothing was run: no.")

    settings.SANDBOX = True
    monkeypatch.setattr("workers.checks.smoke.run_trial", refuse)
    assert work_on(rerun(version, "smoke").pk)
    assert (row(version, "smoke").verdict, row(version, "smoke").summary) == (
        "error",
        "The sandbox cannot be had on this host, so nothing was run: no.",
    )


def test_code_that_the_project_forbids_is_not_run(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("it was run")

    config = b'input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }'
    version = factories.make_version(factories.make_model(), {"model.py": b"pass", "config.pbtxt": config})
    assert work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    type(version.model.project).objects.update(code_formats="forbid")
    settings.SANDBOX = True
    monkeypatch.setattr("workers.checks.smoke.run_trial", never)
    monkeypatch.setattr("workers.checks.described.run_trial", never)
    assert work_on(rerun(version, "smoke").pk)
    assert row(version, "smoke").verdict == "error"
    assert "does not allow code" in row(version, "smoke").summary
    second = factories.make_version(version.model, {"model.py": b"pass"})
    work_on(factories.make_operation(second).pk)
    assert row(second, "code").verdict == "fail"
    assert not Check.objects.filter(version=second, kind="signature").exists()


def test_a_lost_lease_writes_no_verdict(version: ModelVersion, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SANDBOX = True
    operation = rerun(version, "smoke")
    lease = Lease(operation.pk, "gone")
    monkeypatch.setattr("workers.checks.smoke.run_trial", lambda *_arguments: None)
    with pytest.raises(LeaseLost):
        check_version(operation, lease)
    assert row(version, "smoke").verdict == "running"
