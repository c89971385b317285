"""Signatures over versions: good ones name their key, and whatever was touched afterwards is refused."""

from __future__ import annotations

import builtins
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import signatures
from flotilla.cli import main
from registry.errors import Conflict, ValidationFailed
from registry.models import (
    AuditEvent,
    Check,
    ModelVersion,
    Project,
    RegisteredModel,
    SigningIdentity,
    SigningKey,
    VersionSigner,
)
from registry.selectors.signing import verified_by
from registry.services.checks import check_rerun
from registry.services.signing import signing_key_add, signing_key_remove, signing_policy_set
from registry.services.signing_identities import signing_identity_add, signing_identity_remove
from tests.signatures.authorities import DAY, ISSUER, NOW, WORKFLOW, Authority, LocalSigstore, key_pem, pem
from tests.workers import factories
from tests.workers.checks.test_unopened import CONFIG, PYTHON
from workers.tasks.operations import work_on

FILES = {"model.py": PYTHON, "config.pbtxt": CONFIG, "lib/table.txt": b"1 2 3", ".gitattributes": b"* binary"}


def make_key(folder: Path, name: str, curve: Any = None, password: bytes | None = None) -> tuple[Path, str]:
    """Return the file of a private key and the PEM of its public one."""
    private = ec.generate_private_key(curve or ec.SECP256R1())
    how = BestAvailableEncryption(password) if password else NoEncryption()
    path = folder / f"{name}.key"
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return path, private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def signed(folder: Path, key: Path, files: dict[str, bytes], *options: str) -> dict[str, bytes]:
    """Return the files with the signature that ``flotilla sign`` makes."""
    place = folder / "model"
    shutil.rmtree(place, ignore_errors=True)
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    result = CliRunner().invoke(main, ["sign", str(place), "--key", str(key), *options])
    assert result.exit_code == 0, result.output
    return {**files, "model.sig": (place / "model.sig").read_bytes()}


def checked(files: dict[str, bytes]) -> tuple[ModelVersion, Check | None]:
    model = RegisteredModel.objects.get()
    version = factories.make_version(model, files)
    work_on(factories.make_operation(version).pk)
    version.refresh_from_db()
    return version, Check.objects.filter(version=version, kind="signature_verification").first()


@pytest.fixture
def project() -> Project:
    return factories.make_model().project


def trust(project: Project, public: str, name: str = "release", policy: str = "required") -> SigningKey:
    signing_policy_set(project=project, policy=policy, actor=factories.SYSTEM)
    return signing_key_add(project=project, name=name, public_key=public, actor=factories.SYSTEM)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_good_signature_names_its_key(tmp_path: Path, project: Project, curve: Any) -> None:
    _other, public_of_other = make_key(tmp_path, "other")
    private, public = make_key(tmp_path, "release", curve)
    trust(project, public_of_other, "another")
    key = trust(project, public)
    version, row = checked(signed(tmp_path, private, FILES))
    assert row is not None and (version.state, row.verdict) == ("ready", "pass"), version.state_reason
    assert row.evidence["signer"] == {"kind": "key", "name": "release", "fingerprint": key.fingerprint}
    assert row.evidence["files"] == len(FILES) and "release" in row.summary and key.fingerprint[:16] in row.summary


def changed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "lib/table.txt": b"1 2 4"}


def swapped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "lib/table.txt": files[".gitattributes"], ".gitattributes": files["lib/table.txt"]}


def renamed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {("lib/other.txt" if name == "lib/table.txt" else name): content for name, content in files.items()}


def without(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name != "lib/table.txt"}


def with_more(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, ".git/hooks.py": b"import os"}


def forged(files: dict[str, bytes]) -> dict[str, bytes]:
    bundle = json.loads(files["model.sig"])
    text = bundle["dsseEnvelope"]["payload"]
    bundle["dsseEnvelope"]["payload"] = text[:40] + ("A" if text[40] != "A" else "B") + text[41:]
    return {**files, "model.sig": json.dumps(bundle).encode()}


def with_no_signatures(files: dict[str, bytes]) -> dict[str, bytes]:
    bundle = json.loads(files["model.sig"])
    bundle["dsseEnvelope"]["signatures"] = []
    return {**files, "model.sig": json.dumps(bundle).encode()}


def with_rubbish(files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "model.sig": b"[" * 100_000}


TAMPERED: dict[Callable[[dict[str, bytes]], dict[str, bytes]], str] = {
    changed: "changed: lib/table.txt",
    swapped: "changed: .gitattributes, lib/table.txt",
    renamed: "missing: lib/table.txt; not signed: lib/other.txt",
    without: "missing: lib/table.txt",
    with_more: "not signed: .git/hooks.py",
    forged: "No key that the project trusts",
    with_no_signatures: "No key that the project trusts",
    with_rubbish: "No key that the project trusts",
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda one: one.__name__)
def test_what_was_touched_afterwards_is_refused(
    tmp_path: Path, project: Project, tamper: Callable[[dict[str, bytes]], dict[str, bytes]]
) -> None:
    private, public = make_key(tmp_path, "release")
    trust(project, public, policy="optional")
    version, row = checked(tamper(signed(tmp_path, private, FILES)))
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    assert TAMPERED[tamper] in version.state_reason


@pytest.mark.django_db(transaction=True)
def test_the_signature_of_a_stranger_is_refused(tmp_path: Path, project: Project) -> None:
    _private, public = make_key(tmp_path, "release")
    stranger, _public = make_key(tmp_path, "stranger")
    trust(project, public)
    files = signed(tmp_path, stranger, FILES)
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    # Nor does it help to claim the name of a trusted key.
    bundle = json.loads(files["model.sig"])
    bundle["verificationMaterial"]["publicKey"]["hint"] = SigningKey.objects.get().fingerprint
    version, row = checked({**files, "model.sig": json.dumps(bundle).encode()})
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    assert "No key that the project trusts" in version.state_reason


@pytest.mark.django_db(transaction=True)
def test_other_digests_than_ours_are_refused_by_name(tmp_path: Path, project: Project) -> None:
    from model_signing import hashing, signing

    private, public = make_key(tmp_path, "release")
    trust(project, public)
    files = signed(tmp_path, private, FILES)
    place = tmp_path / "model"
    how = hashing.Config().use_file_serialization(hashing_algorithm="blake2")
    how.set_ignored_paths(paths=[place / "model.sig"], ignore_git_paths=False)
    signer = signing.Config().use_elliptic_key_signer(private_key=private)
    signer.set_hashing_config(how).sign(place, place / "model.sig")
    version, _row = checked({**files, "model.sig": (place / "model.sig").read_bytes()})
    assert version.state == "rejected" and "not SHA-256" in version.state_reason


@pytest.mark.django_db(transaction=True)
def test_policies_without_a_signature_or_a_key(tmp_path: Path, project: Project) -> None:
    version, row = checked(FILES)
    assert row is None and version.state == "ready"
    signing_policy_set(project=project, policy="optional", actor=factories.SYSTEM)
    version, row = checked(FILES)
    assert row is not None and (version.state, row.verdict) == ("ready", "warn") and "no signature" in row.summary
    private, _public = make_key(tmp_path, "release")
    files = signed(tmp_path, private, FILES)
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("ready", "error") and "trusts nobody yet" in row.summary
    signing_policy_set(project=project, policy="required", actor=factories.SYSTEM)
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("rejected", "error")
    version, row = checked(FILES)
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
    assert "requires one" in version.state_reason


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("policy", "state"), [("optional", "ready"), ("required", "rejected")])
def test_without_the_library_nothing_passes(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch, policy: str, state: str
) -> None:
    private, public = make_key(tmp_path, "release")
    trust(project, public, policy=policy)
    files = signed(tmp_path, private, FILES)
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith(("model_signing", "sigstore")):
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    # whoever used the library before must not have it ready
    monkeypatch.delitem(sys.modules, "signatures.readers", raising=False)
    monkeypatch.delattr(signatures, "readers", raising=False)
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == (state, "error")
    assert "extra “signing”" in row.summary
    result = CliRunner().invoke(main, ["sign", str(tmp_path / "model"), "--key", str(private)])
    assert result.exit_code == 1 and "flotilla[signing]" in result.output


@pytest.mark.django_db(transaction=True)
def test_a_version_is_checked_late_and_fails_once_its_key_is_gone(tmp_path: Path, project: Project) -> None:
    private, public = make_key(tmp_path, "release")
    version, row = checked(signed(tmp_path, private, FILES))
    assert row is None and version.state == "ready"
    key = trust(project, public)

    def again() -> str:
        asked = check_rerun(version=version, kind="signature_verification", actor=factories.SYSTEM)
        work_on(asked.pk)
        return Check.objects.get(version=version, kind="signature_verification").verdict

    assert again() == "pass"
    signing_key_add(project=project, name="next", public_key=make_key(tmp_path, "next")[1], actor=factories.SYSTEM)
    signing_key_remove(key=key, actor=factories.SYSTEM)
    assert again() == "fail"
    version.refresh_from_db()
    assert version.state == "ready"


@pytest.mark.django_db(transaction=True)
def test_keys_are_read_and_audited(tmp_path: Path, project: Project) -> None:
    private, public = make_key(tmp_path, "release")
    key = trust(project, public.replace("\n", "\r\n"))
    assert key.public_key == public
    events = AuditEvent.objects.filter(action__in=["project.signing_policy", "signing_key.add"])
    assert [event.after for event in events.order_by("created_at")] == [
        {"signing_policy": "required"},
        {"name": "release", "fingerprint": key.fingerprint},
    ]
    with pytest.raises(Conflict, match="as “release”"):
        trust(project, public, "again")
    with pytest.raises(Conflict, match="a key “release” already"):
        trust(project, make_key(tmp_path, "new")[1])
    edwards = ed25519.Ed25519PrivateKey.generate().public_key()
    for text, why in {
        private.read_text(): "private key",
        "rubbish": "no public key",
        make_key(tmp_path, "koblitz", ec.SECP256K1())[1]: "P-256",
        edwards.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(): "P-256",
    }.items():
        with pytest.raises(ValidationFailed, match=why):
            trust(project, text, "odd")
    assert SigningKey.objects.count() == 1


def trust_authority(project: Project, root: Authority, *revoked: Any) -> SigningIdentity:
    signing_policy_set(project=project, policy="required", actor=factories.SYSTEM)
    text = pem(root.certificate, *revoked)
    return signing_identity_add(
        project=project, name="corp", identity="CN=release", certificates=text, actor=factories.SYSTEM
    )


def signed_with_certificate(folder: Path, root: Authority, **how: Any) -> dict[str, bytes]:
    leaf, key = root.issue(**how)
    (folder / "leaf.pem").write_text(pem(leaf))
    (folder / "leaf.key").write_bytes(key_pem(key))
    return signed(folder, folder / "leaf.key", FILES, "--certificate", str(folder / "leaf.pem"))


@pytest.mark.django_db(transaction=True)
def test_a_certificate_of_a_trusted_authority(tmp_path: Path, project: Project) -> None:
    root = Authority()
    row_of = trust_authority(project, root)
    files = signed_with_certificate(tmp_path, root)
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("ready", "pass"), version.state_reason
    signer = row.evidence["signer"]
    assert (signer["kind"], signer["identity"], signer["identity_id"]) == ("certificate", "CN=release", str(row_of.pk))
    assert verified_by(project)[str(row_of.pk)] == 1
    # Nodes verify by the same authority, as of the same time.
    carried = VersionSigner.objects.get(version=version).signer
    assert carried["material"] == pem(root.certificate) and carried["at"] > 0
    for other, why in (
        (signed_with_certificate(tmp_path, Authority()), "corp: no chain"),
        (signed_with_certificate(tmp_path, root, name="build"), "the certificate is of CN=build"),
        (signed_with_certificate(tmp_path, root, begin=NOW - 3 * DAY, end=NOW - 2 * DAY), "was used at"),
        (changed(files), "changed: lib/table.txt"),
    ):
        version, row = checked(other)
        assert row is not None and (version.state, row.verdict) == ("rejected", "fail")
        assert why in version.state_reason


@pytest.mark.django_db(transaction=True)
def test_once_the_authority_is_gone_the_check_fails_and_what_serves_goes_on(tmp_path: Path, project: Project) -> None:
    root = Authority()
    row = trust_authority(project, root)
    version, _check = checked(signed_with_certificate(tmp_path, root))
    signing_identity_remove(identity=row, actor=factories.SYSTEM)
    trust_authority(project, Authority())

    def again() -> str:
        work_on(check_rerun(version=version, kind="signature_verification", actor=factories.SYSTEM).pk)
        return Check.objects.get(version=version, kind="signature_verification").verdict

    assert again() == "fail"
    version.refresh_from_db()
    assert version.state == "ready" and VersionSigner.objects.filter(version=version).exists()
    actions = AuditEvent.objects.filter(object_type="signingidentity").order_by("created_at")
    assert [event.action.rpartition(".")[2] for event in actions] == ["add", "remove", "add"]


@pytest.mark.django_db(transaction=True)
def test_a_keyless_identity_needs_the_trusted_root_of_the_site(tmp_path: Path, project: Project, settings: Any) -> None:
    sigstore = LocalSigstore()
    signing_policy_set(project=project, policy="required", actor=factories.SYSTEM)
    signing_identity_add(
        project=project,
        name="ci",
        identity=WORKFLOW.replace("v1.0", "*"),
        issuer=ISSUER,
        actor=factories.SYSTEM,
    )
    files = {**FILES, "model.sig": json.dumps(sigstore.bundle(FILES)).encode()}
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("rejected", "error")
    assert "no Sigstore trusted root" in row.summary
    settings.SIGSTORE_TRUSTED_ROOT = str(tmp_path / "root.json")
    version, row = checked(files)
    assert row is not None and row.verdict == "error" and "cannot be read" in row.summary
    (tmp_path / "root.json").write_text(sigstore.trusted_root())
    version, row = checked(files)
    assert row is not None and (version.state, row.verdict) == ("ready", "pass"), version.state_reason
    assert (row.evidence["signer"]["identity"], row.evidence["signer"]["issuer"]) == (WORKFLOW, ISSUER)
    version, row = checked({**FILES, "model.sig": json.dumps(LocalSigstore().bundle(FILES)).encode()})
    assert row is not None and (version.state, row.verdict) == ("rejected", "fail")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"identity": "CN=x"}, "issuer"),
        ({"identity": "CN=x", "certificates": "rubbish"}, "certificates"),
        ({"identity": "CN=x", "certificates": "-----BEGIN PRIVATE KEY-----"}, "certificates"),
        ({"identity": "CN=x", "certificates": "LEAF"}, "certificates"),
        ({"identity": "CN=x", "certificates": "ROOT", "issuer": ISSUER}, "issuer"),
        ({"identity": "CN=*", "certificates": "ROOT"}, "identity"),
        ({"identity": "*", "issuer": ISSUER}, "identity"),
        ({"identity": "a@b.example", "issuer": "http://issuer.example"}, "issuer"),
        ({"identity": "a@b.example", "issuer": ISSUER, "name": " "}, "name"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_identities_that_would_trust_too_much_are_refused(project: Project, given: dict[str, str], field: str) -> None:
    root = Authority()
    texts = {"ROOT": pem(root.certificate), "LEAF": pem(root.issue()[0])}
    given = {
        "name": "x",
        **given,
        "certificates": texts.get(given.get("certificates", ""), given.get("certificates", "")),
    }
    with pytest.raises(ValidationFailed) as caught:
        signing_identity_add(project=project, **given, actor=factories.SYSTEM)
    assert [problem["field"] for problem in caught.value.errors] == [field]
    assert not SigningIdentity.objects.exists()


@pytest.mark.django_db
def test_the_same_identity_is_trusted_once(project: Project) -> None:
    root = Authority()
    trust_authority(project, root, root.revoke())
    with pytest.raises(Conflict, match="an identity “corp” already"):
        trust_authority(project, Authority())
    with pytest.raises(Conflict, match="as “corp”"):
        signing_identity_add(
            project=project,
            name="again",
            identity="CN=release",
            certificates="\n" + SigningIdentity.objects.get().certificates,
            actor=factories.SYSTEM,
        )


def test_signing_with_a_password_and_with_what_is_no_key(tmp_path: Path) -> None:
    private, _public = make_key(tmp_path, "release", password=b"secret")
    (tmp_path / "password").write_bytes(b"secret\n")
    assert "model.sig" in signed(tmp_path, private, FILES, "--password-file", str(tmp_path / "password"))
    (tmp_path / "rubbish").write_text("rubbish")
    for key in (private, tmp_path / "rubbish"):
        result = CliRunner().invoke(main, ["sign", str(tmp_path / "model"), "--key", str(key)])
        assert result.exit_code == 1 and "is not signed" in result.output
