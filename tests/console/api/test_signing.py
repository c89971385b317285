"""Signing keys and the policy over the API and from a shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from registry.models import Project
from registry.services.signing import signing_key_add
from tests.console.conftest import Cast, RunningConsole, public_key

pytestmark = pytest.mark.django_db(transaction=True)
KEYS = "/api/v1/projects/wren/signing-keys/"


def test_keys_are_public_and_only_administrators_trust_them(cast: Cast, api: Callable[..., Any]) -> None:
    body = {"name": "release", "public_key": public_key()}
    assert api("bob").post(KEYS, body).status_code == 403
    assert api("charlie").get(KEYS).status_code == 404
    made = api("alice").post(KEYS, body)
    assert made.status_code == 201, made.json()
    assert made.json()["public_key"] == body["public_key"] and made.json()["created_by"] == "alice"
    assert [key["name"] for key in api("vera").get(KEYS).json()["results"]] == ["release"]
    again = api("alice").post(KEYS, {**body, "name": "again"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    wrong = api("alice").post(KEYS, {"name": "odd", "public_key": "rubbish"})
    assert wrong.status_code == 400 and wrong.json()["errors"][0]["field"] == "public_key"
    policy = api("alice").patch(
        "/api/v1/projects/wren/policies/", {"signing_policy": "required"}, headers={"If-Match": "*"}
    )
    assert policy.status_code == 200 and policy.json()["signing_policy"] == "required"
    assert Project.objects.get(slug="wren").signing_policy == "required"


def test_from_a_shell(shared_cast: Cast, console: RunningConsole, tmp_path: Path) -> None:
    environment = {
        "FLOTILLA_URL": console.url,
        "FLOTILLA_TOKEN": shared_cast.token("alice", "admin"),
        "FLOTILLA_PROJECT": "wren",
    }

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["signing", *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    (tmp_path / "release.pem").write_text(public_key())
    assert "SHA-256" in run("trust", "release", "--public-key", str(tmp_path / "release.pem"))
    assert "release" in run("keys") and "alice" in run("keys")
    assert run("policy").strip() == "off"
    assert run("policy", "optional").strip() == "optional"
    assert "no longer" in run("distrust", "release")
    assert "trusts no key release" in run("distrust", "release", status=1)


def test_there_is_a_limit(cast: Cast, monkeypatch: pytest.MonkeyPatch, api: Callable[..., Any]) -> None:
    monkeypatch.setattr("registry.services.signing.MAX_KEYS", 1)
    signing_key_add(project=cast.project, name="one", public_key=public_key(), actor=cast.actor("alice"))
    full = api("alice").post(KEYS, {"name": "two", "public_key": public_key()})
    assert (full.status_code, full.json()["code"]) == (413, "quota_exceeded")
