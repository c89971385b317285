"""Whether a chain of certificates ends at an authority that is believed, and whom its first one names. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

_REVOCATIONS = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class ChainRefusedError(Exception):
    """A certificate proves nothing here. The text says why."""


def authorities(pem: str) -> tuple[list[x509.Certificate], list[x509.CertificateRevocationList]]:
    """Return the certificates of authorities in a PEM text, and the lists of revoked certificates in it.

    Raises:
        ValueError: it cannot be read, or one of them is no authority.
    """
    data = pem.encode()
    certificates = x509.load_pem_x509_certificates(data)
    for certificate in certificates:
        try:
            is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            is_authority = False
        if not is_authority:
            raise ValueError(f"{certificate.subject.rfc4514_string()} is no certificate authority")
    return certificates, [x509.load_pem_x509_crl(block) for block in _REVOCATIONS.findall(data)]


def names(certificate: x509.Certificate) -> list[str]:
    """Return whom a certificate names: addresses, e-mail addresses and hosts, and last its subject."""
    found: list[str] = []
    try:
        other = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        pass
    else:
        for kind in (x509.UniformResourceIdentifier, x509.RFC822Name, x509.DNSName):
            found += other.get_values_for_type(kind)
    subject = certificate.subject.rfc4514_string()
    return [*found, subject] if subject else found


def proven_key(
    certificate: x509.Certificate, rest: Sequence[x509.Certificate], trusted: str, at: datetime
) -> ec.EllipticCurvePublicKey:
    """Return the key of a certificate once it is proven: by a chain, at that time, to sign with, not revoked.

    Raises:
        ChainRefusedError: it is not.
    """
    roots, revocations = authorities(trusted)
    policy = PolicyBuilder().store(Store(roots)).time(at).max_chain_depth(8)
    policy = policy.extension_policies(ca_policy=_authority_policy(), ee_policy=_signer_policy())
    try:
        chain = policy.build_client_verifier().verify(certificate, list(rest)).chain
    except (VerificationError, x509.UnsupportedGeneralNameType) as error:
        if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            raise ChainRefusedError(
                f"the certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} to "
                f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and was used at {at:%Y-%m-%d %H:%M}"
            ) from error
        raise ChainRefusedError(f"no chain of certificates leads to a trusted authority: {error}") from error
    for one, issuer in itertools.pairwise(chain):
        if _is_revoked(one, issuer, revocations):
            raise ChainRefusedError(f"the certificate of {one.subject.rfc4514_string()} is revoked")
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ChainRefusedError("the certificate has no elliptic curve key")
    return key


def _authority_policy() -> ExtensionPolicy:
    # Authorities of companies are used for more than signing; what they are for is not looked at.
    return ExtensionPolicy.webpki_defaults_ca().may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, None)


def _signer_policy() -> ExtensionPolicy:
    # The defaults are those of TLS: they ask for an alternative name, and for use as a client.
    return (
        ExtensionPolicy.webpki_defaults_ee()
        .may_be_present(x509.SubjectAlternativeName, Criticality.AGNOSTIC, None)
        .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_sign)
        .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _signs_code)
    )


def _may_sign(policy: Policy, certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is None or not usage.digital_signature:
        raise ValueError("its key usage is not to sign (digitalSignature)")


def _signs_code(policy: Policy, certificate: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> None:
    if usage is not None and ExtendedKeyUsageOID.CODE_SIGNING not in usage:
        raise ValueError("its extended key usage is not to sign code (codeSigning)")


def _is_revoked(
    certificate: x509.Certificate, issuer: x509.Certificate, revocations: Sequence[x509.CertificateRevocationList]
) -> bool:
    for one in revocations:
        if one.issuer != issuer.subject:
            continue
        try:
            key = issuer.public_key()
            is_ours = one.is_signature_valid(key)  # type: ignore[arg-type]
        except (TypeError, UnsupportedAlgorithm):
            is_ours = False
        if is_ours and one.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            return True
    return False
