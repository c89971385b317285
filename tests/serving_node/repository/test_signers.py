"""A node verifies who signed a version once more, by the control plane's word or by its own."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from serving_node.contract.control import FileRef, Unit
from serving_node.contract.digests import config_digest, manifest_digest
from serving_node.contract.model_config import parse_json
from serving_node.contract.signing import Signer, SignerKind
from serving_node.repository.blob_store import BlobStore
from serving_node.repository.signers import read_signers
from serving_node.repository.unit_steps import StepError, UnitSteps
from tests.signatures.authorities import ISSUER, WORKFLOW, LocalSigstore

FILES = {"model.onnx": b"weights", "lib/table.txt": b"1 2 3"}
CONFIG = {"name": "m", "backend": "onnxruntime"}
Boot = Callable[..., UnitSteps]


class NothingToFetch:
    def fetch(self, sha256: str, size: int, **how: object) -> None:
        raise AssertionError


@pytest.fixture(scope="module")
def sigstore() -> LocalSigstore:
    return LocalSigstore()


def signer_of(sigstore: LocalSigstore) -> Signer:
    return Signer("ci", SignerKind.KEYLESS, sigstore.trusted_root(), WORKFLOW, ISSUER)


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    def start(*believed: Signer) -> UnitSteps:
        store = BlobStore(tmp_path / "blobs")
        return UnitSteps(store, NothingToFetch(), tmp_path / "models", believed_signers=believed)

    return start


def stored(steps: UnitSteps, files: dict[str, bytes], signer: Signer | None) -> Unit:
    """Put files into the node's store, as the fetcher does, and return the unit that names them."""
    for content in files.values():
        digest = hashlib.sha256(content).hexdigest()
        steps.store.partial_path(digest).write_bytes(content)
        steps.store.commit(digest, len(content))
    references = tuple(
        FileRef(name, hashlib.sha256(content).hexdigest(), len(content)) for name, content in files.items()
    )
    return Unit(
        "u1", 1, config_digest(parse_json(CONFIG)), CONFIG, manifest_digest(references), references, signer=signer
    )


def refused(steps: UnitSteps, unit: Unit) -> str:
    with pytest.raises(StepError) as caught:
        steps.verify(unit)
    assert not caught.value.transient
    return caught.value.code


def test_what_was_signed_passes_and_travels_as_json(boot: Boot, sigstore: LocalSigstore) -> None:
    signed = {**FILES, "model.sig": json.dumps(sigstore.bundle(FILES)).encode()}
    unit = stored(boot(), signed, signer_of(sigstore))
    boot().verify(unit)
    assert Unit.from_json(json.loads(json.dumps(unit.to_json()))) == unit
    boot().verify(stored(boot(), FILES, None))


@pytest.mark.parametrize("other", ["changed", "added", "without", "stranger", "rubbish"])
def test_other_files_and_signers_are_refused(boot: Boot, sigstore: LocalSigstore, other: str) -> None:
    bundle = json.dumps((LocalSigstore() if other == "stranger" else sigstore).bundle(FILES)).encode()
    files = {**FILES, "model.sig": b"[" if other == "rubbish" else bundle}
    files |= {"changed": {"lib/table.txt": b"1 2 4"}, "added": {"more.txt": b"x"}}.get(other, {})
    if other == "without":
        del files["model.sig"]
    code = refused(boot(), stored(boot(), files, signer_of(sigstore)))
    assert code == ("signature_missing" if other == "without" else "signature_invalid")


def test_a_node_that_believes_only_its_own_list(boot: Boot, sigstore: LocalSigstore, tmp_path: Path) -> None:
    path = tmp_path / "signers.json"
    path.write_text(json.dumps([signer_of(sigstore).to_json()]))
    believed = read_signers(path)
    signed = {**FILES, "model.sig": json.dumps(sigstore.bundle(FILES)).encode()}
    unit = stored(boot(), signed, None)
    boot(*believed).verify(unit)
    # Whatever the control plane says about somebody else.
    other = LocalSigstore()
    forged = {**FILES, "model.sig": json.dumps(other.bundle(FILES)).encode()}
    assert refused(boot(*believed), stored(boot(), forged, signer_of(other))) == "signature_invalid"
    assert refused(boot(*believed), stored(boot(), FILES, None)) == "signature_missing"


def test_without_the_library_a_signed_version_is_refused(
    boot: Boot, sigstore: LocalSigstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = {**FILES, "model.sig": json.dumps(sigstore.bundle(FILES)).encode()}
    unit = stored(boot(), signed, signer_of(sigstore))
    monkeypatch.setitem(sys.modules, "signatures.readers", None)
    monkeypatch.delattr("signatures.readers", raising=False)
    assert refused(boot(), unit) == "signature_unverifiable"
    boot().verify(replace(unit, signer=None))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[{"name": "ci", "kind": "pigeon", "material": ""}]'])
def test_a_list_of_signers_that_cannot_be_read_stops_the_node(tmp_path: Path, text: str) -> None:
    path = tmp_path / "signers.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"signers\.json"):
        read_signers(path)
