"""The library's verifiers of the three kinds, from memory instead of files, and stricter about certificates.

The public functions of the library read and hash every file again; these parts of it, pinned to 1.1, give what was
signed instead, and whoever asks knows the digests of the files already. Of certificates it looks at neither time nor
names. This module needs the extra ``signing``.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from model_signing._signing import sign_certificate, sign_ec_key, sign_sigstore, sign_sigstore_pb
from sigstore.errors import VerificationError
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier, policy
from sigstore_models.trustroot import v1 as trust_root

from serving_node.contract.signing import Signer, SignerKind, is_named
from signatures.certificates import ChainRefusedError, names, proven_key


def read(path: Path, signer: Signer) -> tuple[str, str, Any]:
    """Return the identity, the fingerprint and the library's manifest of a signature that ``signer`` made.

    Raises:
        Exception: it did not, or the file is no signature.
    """
    match signer.kind:
        case SignerKind.KEY:
            manifest = _Key(signer).verify(sign_sigstore_pb.Signature.read(path))
            return "", hashlib.sha256(signer.material.encode()).hexdigest(), manifest
        case SignerKind.CERTIFICATE:
            signature = sign_sigstore_pb.Signature.read(path)
            manifest = _Certificate(signer).verify(signature)
            chain = signature.bundle.verification_material.x509_certificate_chain
            leaf = x509.load_der_x509_certificate(chain.certificates[0].raw_bytes)
        case SignerKind.KEYLESS:
            bundle = Bundle.from_json(path.read_bytes())
            manifest = _Keyless(signer).verify(sign_sigstore.Signature(bundle))
            leaf = bundle.signing_certificate
    identity = next(name for name in names(leaf) if is_named(signer.identity, [name]))
    return identity, leaf.fingerprint(SHA256()).hex(), manifest


class _Key(sign_ec_key.Verifier):
    def __init__(self, signer: Signer) -> None:
        self._public_key = load_pem_public_key(signer.material.encode())


class _Certificate(sign_certificate.Verifier):
    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def _verify_certificates(self, verification_material: Any, log_fingerprints: bool = False) -> Any:
        chain = [
            x509.load_der_x509_certificate(one.raw_bytes)
            for one in verification_material.x509_certificate_chain.certificates
        ]
        at = datetime.fromtimestamp(self._signer.at or time.time(), UTC)
        key = proven_key(chain[0], chain[1:], self._signer.material, at)
        if not is_named(self._signer.identity, names(chain[0])):
            raise ChainRefusedError(f"the certificate is of {', '.join(names(chain[0]))}")
        return key


class _Keyless(sign_sigstore.Verifier):
    def __init__(self, signer: Signer) -> None:
        root = TrustedRoot(trust_root.TrustedRoot.from_json(signer.material.encode()))
        self._verifier = Verifier(trusted_root=root)
        issuers: list[policy.VerificationPolicy] = [
            policy.OIDCIssuer(signer.issuer),
            policy.OIDCIssuerV2(signer.issuer),
        ]
        self._policy = policy.AllOf([policy.AnyOf(issuers), _Named(signer.identity)])


class _Named:
    """See ``sigstore.verify.policy.VerificationPolicy``."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def verify(self, cert: x509.Certificate) -> None:
        """Raise VerificationError unless the certificate names whom it must."""
        if not is_named(self._pattern, names(cert)):
            raise VerificationError(f"the certificate is of {', '.join(names(cert))}")
