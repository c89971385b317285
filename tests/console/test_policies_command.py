"""Policies and permissions for code, over the API and from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from django.utils import timezone

from flotilla.cli import main
from registry.models import ModelVersion, Project
from tests.console.conftest import Cast, RunningConsole

pytestmark = pytest.mark.django_db(transaction=True)
CODE = "/api/v1/projects/wren/models/finch/versions/1/code/"


def permitted(cast: Cast) -> ModelVersion:
    version = cast.ready_version()
    files = [{"path": "model.py", "why": "Python source"}]
    ModelVersion.objects.filter(pk=version.pk).update(
        code_files=files, code_permitted_by=cast.bob, code_permitted_at=timezone.now()
    )
    return version


def test_permissions_over_the_api(cast: Cast, api: Callable[..., Any]) -> None:
    permitted(cast)
    found = api("vera").get(CODE).json()
    assert (found["permitted_by"], found["withdrawn_at"], found["effects"]) == ("bob", None, [])
    listed = api("vera").get("/api/v1/projects/wren/code-permissions/").json()["results"]
    assert [one["number"] for one in listed] == [1]
    assert api("vera").post(f"{CODE}withdraw", {"reason": "leak"}).status_code == 403
    assert api("charlie").get(CODE).status_code == 404
    assert api("alice").post(f"{CODE}withdraw", {"reason": ""}).status_code == 400
    gone = api("alice").post(f"{CODE}withdraw", {"reason": "leak"}).json()
    assert (gone["permitted_at"], gone["withdrawn_by"], gone["withdrawn_reason"]) == (None, "alice", "leak")
    assert api("alice").post(f"{CODE}withdraw", {"reason": "leak"}).status_code == 409
    assert api("alice").post(f"{CODE}permit").json()["permitted_by"] == "alice"
    every = "/api/v1/projects/wren/code-permissions/withdraw"
    assert api("bob").post(every, {"reason": "leak"}).status_code == 403
    assert api("alice").post(every, {"reason": "leak"}).json() == {"versions": 1}


def test_from_a_shell(shared_cast: Cast, console: RunningConsole) -> None:
    permitted(shared_cast)
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice", "admin"),
        "FLOTILLA_PROJECT": "wren",
    }

    def said(*arguments: str) -> Any:
        result = CliRunner(env=environment).invoke(main, [*arguments, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    assert said("policies", "show")["size_limits"]["files"]["warn"] == 1000
    assert said("policies", "size", "files", "--warn", "none", "--fail", "5")["size_limits"]["files"] == {
        "warn": None,
        "fail": 5,
    }
    assert said("policies", "size", "total_bytes", "--fail", "2GiB")["size_limits"]["total_bytes"]["fail"] == 2 << 30
    licences = said("policies", "licences", "--allow", "MIT", "--allow", "BSD-*", "--missing", "refuse")
    assert licences["licence_policy"]["allowed"] == ["MIT", "BSD-*"]
    assert said("policies", "licences", "--forbid", "AGPL-3.0")["licence_policy"]["missing"] == "refuse"
    assert said("policies", "code", "approve", "--pickles", "known-only")["pickles_known_only"] is True
    assert Project.objects.get(slug="wren").code_formats == "approve"
    assert said("code", "show", "finch", "1")["permitted_by"] == "bob"
    assert said("code", "withdraw", "finch", "1", "--reason", "leak")["withdrawn_reason"] == "leak"
    assert said("code", "list") == []
    assert said("code", "permit", "finch", "1")["permitted_by"] == "alice"
    assert said("code", "withdraw-all", "--reason", "leak") == {"versions": 1}
    plain = CliRunner(env=environment).invoke(main, ["code", "show", "finch", "1"])
    assert "Withdrawn by alice" in plain.output
