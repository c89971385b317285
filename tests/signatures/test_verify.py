"""Whose signature counts: chains, times, names and lists of revoked ones; logs and promises of a local Sigstore."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from flotilla.commands.signatures import sign
from serving_node.contract.signing import Signer, SignerKind, is_named, is_safe_pattern
from signatures.verify import NotTrustedError, Signed, differences, signed_files
from tests.signatures.authorities import DAY, ISSUER, NOW, WORKFLOW, Authority, LocalSigstore, key_pem, pem, usage

FILES = {"model.onnx": b"weights", "lib/table.txt": b"1 2 3"}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def signed_by(folder: Path, leaf: x509.Certificate, key: Any, *chain: x509.Certificate) -> Path:
    """Return the signature that ``flotilla sign`` makes with a certificate."""
    model = write(folder / "model", FILES)
    (folder / "leaf.key").write_bytes(key_pem(key))
    (folder / "leaf.pem").write_text(pem(leaf))
    arguments = [str(model), "--key", str(folder / "leaf.key"), "--certificate", str(folder / "leaf.pem")]
    for number, one in enumerate(chain):
        (folder / f"chain-{number}.pem").write_text(pem(one))
        arguments += ["--chain", str(folder / f"chain-{number}.pem")]
    sign.main(arguments, standalone_mode=False)
    return model / "model.sig"


def by_certificate(trusted: str, identity: str = "CN=release", at: float = NOW.timestamp()) -> Signer:
    return Signer("release", SignerKind.CERTIFICATE, trusted, identity, at=at)


def why_not(path: Path, signer: Signer) -> str:
    with pytest.raises(NotTrustedError) as caught:
        signed_files(path, [signer])
    return str(caught.value)


def test_a_certificate_below_an_authority_below_the_root(tmp_path: Path) -> None:
    root = Authority()
    below = Authority("below", root)
    leaf, key = below.issue("release", x509.UniformResourceIdentifier("spiffe://corp/ci/release"))
    path = signed_by(tmp_path, leaf, key, below.certificate)
    signed = signed_files(
        path, [by_certificate(pem(Authority("other").certificate)), by_certificate(pem(root.certificate))]
    )
    assert set(signed.files) == set(FILES) and signed.identity == "CN=release" and len(signed.fingerprint) == 64
    for identity in ("spiffe://corp/ci/release", "spiffe://corp/ci/*", "*"):
        assert signed_files(path, [by_certificate(pem(root.certificate), identity)]).identity
    for identity in ("CN=other", "spiffe://corp/ci", "spiffe://corp/build/*", "release"):
        assert "the certificate is of spiffe://corp/ci/release, CN=release" in why_not(
            path, by_certificate(pem(root.certificate), identity)
        )


def test_no_chain_leads_to_the_root_that_is_trusted(tmp_path: Path) -> None:
    root = Authority()
    below = Authority("below", root)
    leaf, key = below.issue()
    path = signed_by(tmp_path, leaf, key)
    assert "no chain" in why_not(path, by_certificate(pem(root.certificate)))
    assert signed_files(path, [by_certificate(pem(below.certificate))])
    # An authority of the same name is another one.
    assert "no chain" in why_not(path, by_certificate(pem(Authority("below").certificate)))
    assert "nobody trusted" in why_not(path, Signer("release", SignerKind.KEY, ""))


@pytest.mark.parametrize(("days", "is_valid"), [(-2, False), (-0.5, True), (0.5, True), (2, False)])
def test_a_certificate_counts_while_it_was_valid(tmp_path: Path, days: float, is_valid: bool) -> None:
    root = Authority()
    path = signed_by(tmp_path, *root.issue())
    signer = by_certificate(pem(root.certificate), at=(NOW + days * DAY).timestamp())
    if is_valid:
        assert signed_files(path, [signer]).files
    else:
        assert "the certificate is valid from" in why_not(path, signer)


def test_without_a_time_it_must_be_valid_now(tmp_path: Path) -> None:
    root = Authority()
    leaf, key = root.issue(begin=NOW - 3 * DAY, end=NOW - DAY)
    assert "the certificate is valid from" in why_not(
        signed_by(tmp_path, leaf, key), by_certificate(pem(root.certificate), at=0.0)
    )


def test_revoked_certificates_count_no_longer(tmp_path: Path) -> None:
    root = Authority()
    below = Authority("below", root)
    leaf, key = below.issue()
    other, _key = below.issue()
    path = signed_by(tmp_path, leaf, key, below.certificate)
    trusted = pem(root.certificate)
    assert signed_files(path, [by_certificate(trusted + pem(below.revoke(other)))])
    assert "CN=release is revoked" in why_not(path, by_certificate(trusted + pem(below.revoke(other, leaf))))
    assert "CN=below is revoked" in why_not(path, by_certificate(trusted + pem(root.revoke(below.certificate))))
    # A list that somebody else signed under the same name says nothing.
    assert signed_files(path, [by_certificate(trusted + pem(Authority("below").revoke(leaf)))])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"use": usage(key_cert_sign=True)}, "no chain"),
        ({"purpose": ExtendedKeyUsageOID.CLIENT_AUTH}, "codeSigning"),
    ],
    ids=["certifies", "client"],
)
def test_certificates_for_something_else_do_not_sign(tmp_path: Path, made: dict[str, Any], why: str) -> None:
    root = Authority()
    leaf, key = root.issue(**made)
    assert why in why_not(signed_by(tmp_path, leaf, key), by_certificate(pem(root.certificate)))


def test_a_signer_is_no_authority(tmp_path: Path) -> None:
    root = Authority()
    middle, middle_key = root.issue("middle")
    forger = Authority("middle")
    forger.key, forger.certificate = middle_key, middle
    leaf, key = forger.issue()
    assert "no chain" in why_not(signed_by(tmp_path, leaf, key, middle), by_certificate(pem(root.certificate)))


# -- keyless


def kept(folder: Path, bundle: dict[str, Any]) -> Path:
    path = folder / "model.sig"
    path.write_text(json.dumps(bundle))
    return path


def keyless(sigstore: LocalSigstore, identity: str = WORKFLOW, issuer: str = ISSUER) -> Signer:
    return Signer("ci", SignerKind.KEYLESS, sigstore.trusted_root(), identity, issuer)


@pytest.fixture(scope="module")
def sigstore() -> LocalSigstore:
    return LocalSigstore()


def test_a_workflow_signs_without_a_key_of_its_own(tmp_path: Path, sigstore: LocalSigstore) -> None:
    path = kept(tmp_path, sigstore.bundle(FILES))
    signed = signed_files(path, [keyless(sigstore)])
    assert signed.identity == WORKFLOW and not differences(signed.files, _sha256(FILES))
    tags = WORKFLOW.replace("v1.0", "*")
    assert isinstance(signed_files(path, [keyless(sigstore, tags)]), Signed)
    person = kept(tmp_path, sigstore.bundle(FILES, "ana@corp.example", "https://accounts.corp.example"))
    assert signed_files(person, [keyless(sigstore, "ana@corp.example", "https://accounts.corp.example")])


def test_other_workflows_issuers_and_roots_do_not_count(tmp_path: Path, sigstore: LocalSigstore) -> None:
    path = kept(tmp_path, sigstore.bundle(FILES))
    assert WORKFLOW in why_not(path, keyless(sigstore, WORKFLOW.replace("corp", "other")))
    assert "0 of 2 policies" in why_not(path, keyless(sigstore, issuer="https://gitlab.com"))
    assert why_not(path, keyless(LocalSigstore()))
    assert why_not(path, Signer("ci", SignerKind.KEYLESS, "rubbish", WORKFLOW, ISSUER))


def test_a_log_entry_after_the_certificate_ended_proves_nothing(tmp_path: Path, sigstore: LocalSigstore) -> None:
    late = sigstore.bundle(FILES, logged_after=timedelta(minutes=11))
    assert why_not(kept(tmp_path, late), keyless(sigstore))


PARTS = {
    "payload": ("dsseEnvelope", "payload"),
    "signature": ("dsseEnvelope", "signatures", 0, "sig"),
    "certificate": ("verificationMaterial", "certificate", "rawBytes"),
    "body": ("verificationMaterial", "tlogEntries", 0, "canonicalizedBody"),
    "root": ("verificationMaterial", "tlogEntries", 0, "inclusionProof", "rootHash"),
    "promise": ("verificationMaterial", "tlogEntries", 0, "inclusionPromise", "signedEntryTimestamp"),
    "time": ("verificationMaterial", "tlogEntries", 0, "integratedTime"),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_a_bundle_is_looked_at(tmp_path: Path, sigstore: LocalSigstore, part: str) -> None:
    bundle, other = sigstore.bundle(FILES), sigstore.bundle({"model.onnx": b"other"}, signed_at=NOW - 2 * DAY)
    there, here = bundle, other
    *way, last = PARTS[part]
    for step in way:
        there, here = there[step], here[step]
    assert there[last] != here[last]
    there[last] = here[last]
    assert why_not(kept(tmp_path, bundle), keyless(sigstore))


def test_without_its_log_entry_nothing_counts(tmp_path: Path, sigstore: LocalSigstore) -> None:
    bundle = sigstore.bundle(FILES)
    bundle["verificationMaterial"]["tlogEntries"] = []
    assert why_not(kept(tmp_path, bundle), keyless(sigstore))


def _sha256(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


# -- names


@given(st.sampled_from([*SignerKind]), st.text(max_size=30), st.text(max_size=30))
def test_a_safe_pattern_leaves_only_its_end_open(kind: SignerKind, pattern: str, name: str) -> None:
    if is_safe_pattern(kind, pattern) and is_named(pattern, [name]):
        assert name == pattern or name.startswith(pattern.removesuffix("*"))


@pytest.mark.parametrize(
    ("kind", "pattern", "is_safe"),
    [
        ("certificate", "CN=release", True),
        ("certificate", "*", True),
        ("certificate", "spiffe://corp/*", True),
        ("certificate", "spiffe://corp*", False),
        ("certificate", "CN=rel*", False),
        ("certificate", "spiffe://*/ci", False),
        ("certificate", "", False),
        ("keyless", "ana@corp.example", True),
        ("keyless", "https://h/o/r/w.yml@refs/tags/*", True),
        ("keyless", "https://h/o/r/w.yml@refs/*", False),
        ("keyless", "https://h/o/*", False),
        ("keyless", "ana@*", False),
        ("keyless", "*", False),
        ("keyless", "*@refs/tags/*", False),
    ],
)
def test_patterns(kind: str, pattern: str, is_safe: bool) -> None:
    assert is_safe_pattern(SignerKind(kind), pattern) is is_safe
