"""What goes after its time, and what stays however old it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from registry.models import ApprovalRequest, Check, Deployment, ModelVersion, Rollout
from registry.services import retention
from tests.registry.services.test_approvals import request, review

LATER = timezone.now() + timedelta(days=500)


def test_refused_versions_go_and_ready_ones_stay(world: Any) -> None:
    model = world.model("mlp")
    ready = world.ready(model)
    refused = ModelVersion.objects.create(model=model, state="rejected", author=world.bob)
    Check.objects.create(version=refused, kind="format")
    assert retention.refused_versions_purge(timezone.now()) == 0
    assert retention.refused_versions_purge(LATER) == 1
    assert list(ModelVersion.objects.all()) == [ready]
    assert not Check.objects.filter(kind="format", version_id=refused.pk).exists()


def test_history_goes_but_for_the_newest(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = request(world)
    review(world, approval, world.bob)
    deployment = Deployment.objects.get()
    rollout = Rollout.objects.get()
    assert retention.rollouts_purge(LATER) == 0, "an active rollout stays"
    Rollout.objects.update(phase="succeeded")
    assert retention.rollouts_purge(LATER) == 0, "the newest stay for a roll-back"
    assert retention.approvals_purge(LATER) == 0, "a rollout names it"
    monkeypatch.setattr(retention, "NEWEST_ROLLOUTS", 0)
    assert retention.rollouts_purge(timezone.now()) == 0
    assert retention.rollouts_purge(LATER) == 1
    assert not Rollout.objects.filter(pk=rollout.pk).exists()
    assert retention.approvals_purge(timezone.now()) == 0
    assert retention.approvals_purge(LATER) == 1
    assert not ApprovalRequest.objects.exists()
    assert Deployment.objects.get() == deployment
