"""What a project asks of its versions, through the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.models import AuditEvent
from tests.console.conftest import Cast

POLICIES = "/api/v1/projects/wren/policies/"


def test_policies_are_read_by_members_and_changed_by_administrators(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    seen = api("vera", "read").get(POLICIES)
    assert seen.json()["code_formats"] == "allow"
    assert seen.json()["size_limits"]["files"] == {"warn": 1000, "fail": 10_000}
    assert seen.json()["licence_policy"]["missing"] == "review"
    tag = {"If-Match": seen.headers["ETag"]}
    wanted = {
        "signing_policy": "required",
        "size_limits": {"files": {"warn": None, "fail": 20}},
        "licence_policy": {"allowed": ["Apache-2.0", "BSD-*"], "unlisted": "refuse"},
    }
    assert api("bob").patch(POLICIES, wanted, headers=tag).status_code == 403
    changed = alice.patch(POLICIES, wanted, headers=tag)
    assert changed.status_code == 200, changed.content
    assert changed.json()["size_limits"]["files"] == {"warn": None, "fail": 20}
    assert changed.json()["licence_policy"]["allowed"] == ["Apache-2.0", "BSD-*"]
    assert (changed.json()["signing_policy"], changed.json()["code_formats"]) == ("required", "allow")
    assert alice.patch(POLICIES, {"code_formats": "forbid"}, headers=tag).status_code == 412
    actions = AuditEvent.objects.filter(action__startswith="project.").values_list("action", flat=True)
    assert {*actions} >= {"project.signing_policy", "project.size_limits", "project.licence_policy"}


def test_what_is_no_policy_is_refused_with_the_field(cast: Cast, api: Callable[..., Any]) -> None:
    alice = api("alice")
    for wanted, field in (
        ({"licence_policy": {"allowed": ["GPL-99"]}}, "licence_policy.allowed[0]"),
        ({"size_limits": {"files": {"warn": 5, "fail": 2}}}, "size_limits.files.warn"),
        ({"signing_policy": "sometimes"}, "signing_policy"),
        ({"name": "x"}, "name"),
    ):
        answer = alice.patch(POLICIES, wanted, headers={"If-Match": "*"})
        assert answer.status_code == 400, answer.content
        assert answer.json()["errors"][0]["field"] == field
    assert AuditEvent.objects.filter(action__startswith="project.").count() == 0
