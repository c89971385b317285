"""Certificates for the admin ports of nodes on other machines: ``python -m flotilla.certificates FOLDER HOST...``.

Writes ``ca.pem``/``ca.key`` once and ``<host>.pem``/``<host>.key`` for each host; a host's pair is made anew when it
has less than thirty days left.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_DAYS = 3650
_HOST_DAYS = 397
_RENEW_DAYS = 30


def main(arguments: list[str] | None = None) -> None:
    """Make what is missing or about to expire."""
    folder_name, *hosts = sys.argv[1:] if arguments is None else arguments
    folder = Path(folder_name)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "ca.key").exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Flotilla node authority")
        builder = _builder(name, name, key.public_key(), _CA_DAYS).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        _write(folder, "ca", key, builder.sign(key, hashes.SHA256()))
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    authority_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    for host in hosts:
        if _is_fresh(folder / f"{host}.pem"):
            continue
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(host), authority.subject, key.public_key(), _HOST_DAYS)
            .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        )
        _write(folder, host, key, builder.sign(authority_key, hashes.SHA256()))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _is_fresh(path: Path) -> bool:
    if not path.exists():
        return False
    left = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc - dt.datetime.now(dt.UTC)
    return left > dt.timedelta(days=_RENEW_DAYS)


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(folder / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


if __name__ == "__main__":
    main()
