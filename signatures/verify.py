"""Who signed what: a ``model.sig`` against those who are believed, by the digests of the files that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving_node.contract.signing import MAX_SIGNATURE_BYTES, Signer, SignerKind

_MATERIAL = {
    "publicKey": SignerKind.KEY,
    "x509CertificateChain": SignerKind.CERTIFICATE,
    "certificate": SignerKind.KEYLESS,
}


class UnverifiableError(Exception):
    """Signatures cannot be verified here: the library is missing."""


class NotTrustedError(Exception):
    """Nobody who is believed made the signature. ``reasons``: (name of a signer, why it is not theirs)."""

    def __init__(self, kind: SignerKind | None, reasons: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in reasons) or "nobody trusted made the signature")
        self.kind = kind
        self.reasons = tuple(reasons)


class OtherDigestsError(Exception):
    """``name`` signed something else than SHA-256 digests of whole files."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} signed digests that are not SHA-256 of whole files")
        self.name = name


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signature says. ``identity``: whom the certificate names, empty for a key.

    ``fingerprint``: SHA-256 of the public key in PEM, or of the certificate. ``files``: SHA-256 by path.
    """

    signer: Signer
    identity: str
    fingerprint: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Differences:
    """Paths whose content is another one than was signed, that are missing, and that nobody signed."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    not_signed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.not_signed)


def differences(signed: Mapping[str, str], there: Mapping[str, str]) -> Differences:
    """Compare what was signed with what is there, both SHA-256 by path."""
    return Differences(
        changed=tuple(sorted(name for name in signed if name in there and signed[name] != there[name])),
        missing=tuple(sorted(signed.keys() - there.keys())),
        not_signed=tuple(sorted(there.keys() - signed.keys())),
    )


def signed_files(path: Path, signers: Sequence[Signer]) -> Signed:
    """Return who of ``signers`` made the signature in a file, and what it is about.

    Raises:
        UnverifiableError: the library is missing.
        NotTrustedError: nobody of them did.
        OtherDigestsError: it is about something else than files.
    """
    try:
        from signatures import readers
    except ImportError as error:
        raise UnverifiableError(f"{error.name or error} is missing; it is of the extra “signing”") from None
    kind = _kind(path)
    reasons = []
    for signer in signers:
        if signer.kind is not kind:
            continue
        try:
            identity, fingerprint, manifest = readers.read(path, signer)
            how = manifest.serialization_type["method"]
            found = {one.identifier: one.digest for one in manifest.resource_descriptors()}
        except Exception as error:
            # A stranger's file: whatever reading it raises, this signer has not signed it.
            reasons.append((signer.name, str(error) or type(error).__name__))
            continue
        if how != "files" or any(one.algorithm != "sha256" for one in found.values()):
            raise OtherDigestsError(signer.name)
        return Signed(signer, identity, fingerprint, {name: one.digest_hex for name, one in found.items()})
    raise NotTrustedError(kind, reasons)


def _kind(path: Path) -> SignerKind | None:
    """Return how the signature proves who made it; None when that cannot be read."""
    if path.stat().st_size > MAX_SIGNATURE_BYTES:
        return None
    try:
        material = json.loads(path.read_bytes())["verificationMaterial"]
        return next((kind for name, kind in _MATERIAL.items() if name in material), None)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
