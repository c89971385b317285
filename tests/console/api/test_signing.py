"""Signing keys and the policy over the API and from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flotilla.cli import main
from registry.models import Project
from registry.services.signing import signing_key_add
from tests.console.conftest import Cast, RunningConsole, public_key
from tests.signatures.authorities import ISSUER, WORKFLOW, Authority, LocalSigstore, pem

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
    assert "trusts nobody as release" in run("distrust", "release", status=1)
    root = Authority()
    (tmp_path / "root.pem").write_text(pem(root.certificate))
    assert "one of" in run("trust", "corp", status=1)
    assert "--identity" in run("trust", "corp", "--certificates", str(tmp_path / "root.pem"), status=1)
    run("trust", "corp", "--certificates", str(tmp_path / "root.pem"), "--identity", "CN=release")
    run("trust", "ci", "--issuer", ISSUER, "--identity", WORKFLOW)
    assert "keyless" in run("identities") and "CN=release" in run("identities")
    # What the project trusts is what `flotilla verify` asks for.
    sigstore, model = LocalSigstore(), tmp_path / "model"
    model.mkdir()
    (model / "model.onnx").write_bytes(b"weights")
    (tmp_path / "trusted_root.json").write_text(sigstore.trusted_root())
    (model / "model.sig").write_text(json.dumps(sigstore.bundle({"model.onnx": b"weights"})))

    def verify(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(main, ["verify", str(model), *arguments], env=environment)
        assert result.exit_code == status, result.output
        return result.output

    root_option = ("--trusted-root", str(tmp_path / "trusted_root.json"))
    assert WORKFLOW in verify(*root_option)
    assert json.loads(verify(*root_option, "--json"))["signer"] == "ci"
    assert verify(*root_option, "--identity", WORKFLOW, "--issuer", ISSUER)
    assert "proves nothing" in verify(*root_option, "--identity", "x@corp.example", "--issuer", ISSUER, status=1)
    assert "proves nothing" in verify(status=1)
    (model / "more.txt").write_text("x")
    assert "not signed: more.txt" in verify(*root_option, status=1)
    assert "no longer" in run("distrust", "ci")
    assert "proves nothing" in verify(*root_option, status=1)


def test_identities_are_trusted_by_administrators(cast: Cast, api: Callable[..., Any]) -> None:
    place = "/api/v1/projects/wren/signing-identities/"
    body = {"name": "ci", "identity": WORKFLOW.replace("v1.0", "*"), "issuer": ISSUER}
    assert api("bob").post(place, body).status_code == 403
    made = api("alice").post(place, body)
    assert made.status_code == 201, made.json()
    assert (made.json()["kind"], made.json()["certificates"], made.json()["created_by"]) == ("keyless", "", "alice")
    assert [one["name"] for one in api("vera").get(place).json()["results"]] == ["ci"]
    both = api("alice").post(place, {**body, "name": "x", "certificates": pem(Authority().certificate)})
    assert both.status_code == 400 and both.json()["errors"][0]["field"] == "issuer"
    wide = api("alice").post(place, {**body, "name": "x", "identity": "https://github.com/corp/*"})
    assert wide.status_code == 400 and wide.json()["errors"][0]["field"] == "identity"
    one = f"{place}{made.json()['id']}/"
    assert api("vera").get(one).json() == made.json()
    assert api("alice").delete(one, headers={"If-Match": "*"}).status_code == 204
    assert api("alice").get(one).status_code == 404


def test_there_is_a_limit(cast: Cast, monkeypatch: pytest.MonkeyPatch, api: Callable[..., Any]) -> None:
    monkeypatch.setattr("registry.services.signing.MAX_KEYS", 1)
    signing_key_add(project=cast.project, name="one", public_key=public_key(), actor=cast.actor("alice"))
    full = api("alice").post(KEYS, {"name": "two", "public_key": public_key()})
    assert (full.status_code, full.json()["code"]) == (413, "quota_exceeded")
