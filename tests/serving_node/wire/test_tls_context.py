"""Server contexts: what is refused before anybody connects, and who gets in."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from serving_node.wire.tls import ALPN_GRPC, ALPN_HTTP, TlsError, server_context


@dataclass
class Authority:
    """A certificate authority in a folder."""

    folder: Path
    name: str = "root"

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])
        made = self._builder(self.subject, self.key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, passphrase: bytes = b"") -> tuple[Path, Path]:
        """Return the files of a certificate for ``name`` and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        certificate_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate_file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        how: Any = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
        key_file.write_bytes(text)
        return certificate_file, key_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's side after a handshake in memory, during which each side has said a byte."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    done = set()
    for _ in range(10):
        for side in (theirs, ours):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert done == {ours, theirs}
    ours.write(b"x")
    assert theirs.read() == b"x"
    return theirs


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("protocols", [ALPN_HTTP, ALPN_GRPC])
def test_handshake(authority: Authority, protocols: tuple[str, ...]) -> None:
    certificate, key = authority.issue("localhost")
    server = server_context(certificate, key, protocols=protocols)
    client = ssl.create_default_context(cafile=str(authority.file))
    client.set_alpn_protocols(["h2", "http/1.1"])
    side = shake_hands(server, client)
    assert side.selected_alpn_protocol() == protocols[0]
    assert side.version() in ("TLSv1.2", "TLSv1.3")
    # a client that says nothing about protocols, or something else, is let in too
    assert shake_hands(server, ssl.create_default_context(cafile=str(authority.file))).version()


def test_old_versions_are_refused(authority: Authority) -> None:
    server = server_context(*authority.issue("localhost"), protocols=ALPN_HTTP)
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2


def test_mutual(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("localhost")
    server = server_context(certificate, key, root=authority.file, mutual=True, protocols=ALPN_HTTP)
    client = ssl.create_default_context(cafile=str(authority.file))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client)
    client.load_cert_chain(*Authority(tmp_path, "stranger").issue("client-of-stranger"))
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client)
    client.load_cert_chain(*authority.issue("client"))
    assert shake_hands(server, client).version()


def test_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("localhost")
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    with pytest.raises(TlsError, match="no such file"):
        server_context(missing, key, protocols=ALPN_HTTP)
    for bad_certificate, bad_key in (
        (garbage, key),
        (certificate, garbage),
        (certificate, authority.issue("other")[1]),
    ):
        with pytest.raises(TlsError, match="cannot use the certificate"):
            server_context(bad_certificate, bad_key, protocols=ALPN_HTTP)
    with pytest.raises(TlsError, match="needs the root certificates"):
        server_context(certificate, key, mutual=True, protocols=ALPN_HTTP)
    with pytest.raises(TlsError, match="cannot use the root certificates"):
        server_context(certificate, key, root=garbage, mutual=True, protocols=ALPN_HTTP)
    with pytest.raises(TlsError, match="encrypted"):
        server_context(*authority.issue("locked", b"passphrase"), protocols=ALPN_HTTP)
