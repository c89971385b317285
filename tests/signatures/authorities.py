"""Certificate authorities made on the spot, and a Sigstore of one's own: its certificates, its logs, its bundles."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
ISSUER = "https://token.actions.githubusercontent.com"
WORKFLOW = "https://github.com/corp/swift/.github/workflows/release.yml@refs/tags/v1.0"
_SCTS = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_OID = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_PAYLOAD_TYPE = "application/vnd.in-toto+json"


def usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    names = [
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ]
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        **dict.fromkeys((*names, "encipher_only", "decipher_only"), False),
    )


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if name else x509.Name([])


def pem(*certificates: x509.Certificate | x509.CertificateRevocationList) -> str:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass
class Authority:
    """A root, or an authority below another."""

    name: str = "root"
    above: Authority | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        above = self.above or self
        public = self.key.public_key()
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(subject(self.name))
            .issuer_name(subject(above.name))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 1000 * DAY)
            .not_valid_after(NOW + 1000 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage(key_cert_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(self._identifier(above), critical=False)
            .sign(above.key, hashes.SHA256())
        )

    @staticmethod
    def _identifier(above: Authority) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(above.key.public_key())  # type: ignore[arg-type]

    def issue(
        self,
        name: str = "release",
        *names: x509.GeneralName,
        begin: datetime = NOW - DAY,
        end: datetime = NOW + DAY,
        use: x509.KeyUsage | None = None,
        purpose: Any = ExtendedKeyUsageOID.CODE_SIGNING,
        more: tuple[x509.ExtensionType, ...] = (),
        key: ec.EllipticCurvePrivateKey | None = None,
        serial: int | None = None,
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return a certificate to sign with, and its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject(name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(use or usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(self._identifier(self), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not name)
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256()), key

    def revoke(self, *certificates: x509.Certificate) -> x509.CertificateRevocationList:
        """Return the list of those that count no longer."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(NOW - DAY).next_update(NOW + DAY)
        for one in certificates:
            entry = x509.RevokedCertificateBuilder().serial_number(one.serial_number).revocation_date(NOW - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, hashes.SHA256())


def statement(files: Mapping[str, bytes]) -> bytes:
    """Return what OpenSSF Model Signing 1.0 signs: the SHA-256 of each file."""
    digests = {name: hashlib.sha256(content) for name, content in sorted(files.items())}
    whole = hashlib.sha256(b"".join(one.digest() for one in digests.values())).hexdigest()
    resources = [{"name": name, "algorithm": "sha256", "digest": one.hexdigest()} for name, one in digests.items()]
    how = {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": ["model.sig"]}
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "model", "digest": {"sha256": whole}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": how, "resources": resources},
    }
    return json.dumps(document).encode()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def raw(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class LocalSigstore:
    """What Fulcio and Rekor do, without a network: the formats are those of RFC 6962 and the Sigstore bundle 0.3."""

    def __init__(self) -> None:
        self.authority = Authority("fulcio")
        self._certificate_log = ec.generate_private_key(ec.SECP256R1())
        self._log = ec.generate_private_key(ec.SECP256R1())

    def trusted_root(self) -> str:
        """Return the trusted root, as an operator gets it."""
        since = {"start": (NOW - 1000 * DAY).isoformat().replace("+00:00", "Z")}

        def log(key: ec.EllipticCurvePrivateKey, url: str) -> dict[str, Any]:
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": text(raw(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": since,
                },
                "logId": {"keyId": text(hashlib.sha256(raw(key)).digest())},
            }

        der = self.authority.certificate.public_bytes(Encoding.DER)
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self._log, "https://rekor.example")],
                "ctlogs": [log(self._certificate_log, "https://ctfe.example")],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "example", "commonName": "fulcio"},
                        "uri": "https://fulcio.example",
                        "certChain": {"certificates": [{"rawBytes": text(der)}]},
                        "validFor": since,
                    }
                ],
                "timestampAuthorities": [],
            }
        )

    def certificate(
        self, identity: str, issuer: str, begin: datetime
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return a certificate of ten minutes with the timestamp of the certificate log in it, and its key."""
        name = x509.RFC822Name(identity) if "@" in identity and "/" not in identity else None
        encoded = issuer.encode()
        mark = x509.UnrecognizedExtension(_ISSUER_OID, bytes([0x0C, len(encoded)]) + encoded)
        given: dict[str, Any] = {"begin": begin, "end": begin + timedelta(minutes=10)}
        serial = x509.random_serial_number()
        before, key = self.authority.issue(
            "", name or x509.UniformResourceIdentifier(identity), more=(mark,), serial=serial, **given
        )
        body = before.tbs_certificate_bytes
        issuer_key = hashlib.sha256(raw(self.authority.key)).digest()
        milliseconds = int(begin.timestamp() * 1000)
        head = struct.pack("!BBQH", 0, 0, milliseconds, 1)
        signed = head + issuer_key + len(body).to_bytes(3, "big") + body + b"\0\0"
        signature = self._certificate_log.sign(signed, ec.ECDSA(hashes.SHA256()))
        log_id = hashlib.sha256(raw(self._certificate_log)).digest()
        stamp = struct.pack("!B32sQHBBH", 0, log_id, milliseconds, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
        stamps = x509.UnrecognizedExtension(_SCTS, b"\x04" + _length(listed) + listed)
        certificate, _key = self.authority.issue(
            "",
            name or x509.UniformResourceIdentifier(identity),
            more=(mark, stamps),
            serial=serial,
            key=key,
            **given,
        )
        return certificate, key

    def bundle(
        self,
        files: Mapping[str, bytes],
        identity: str = WORKFLOW,
        issuer: str = ISSUER,
        *,
        signed_at: datetime = NOW - DAY,
        logged_after: timedelta = timedelta(minutes=1),
    ) -> dict[str, Any]:
        """Return ``model.sig`` over the files."""
        certificate, key = self.certificate(identity, issuer, signed_at)
        payload = statement(files)
        prefix = f"DSSEv1 {len(_PAYLOAD_TYPE)} {_PAYLOAD_TYPE} {len(payload)} ".encode()
        signature = key.sign(prefix + payload, ec.ECDSA(hashes.SHA256()))
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": text(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._entry(payload, signature, certificate, signed_at + logged_after)],
            },
            "dsseEnvelope": {
                "payload": text(payload),
                "payloadType": _PAYLOAD_TYPE,
                "signatures": [{"sig": text(signature)}],
            },
        }

    def _entry(self, payload: bytes, signature: bytes, certificate: x509.Certificate, at: datetime) -> dict[str, Any]:
        """Return the entry of a log that holds nothing else, so that its leaf is its root."""
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(b"envelope").hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [{"signature": text(signature), "verifier": text(certificate.public_bytes(Encoding.PEM))}],
        }
        body = rfc8785.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        root = hashlib.sha256(b"\0" + body).digest()
        log_id = hashlib.sha256(raw(self._log)).digest()
        note = f"rekor.example - 1\n1\n{text(root)}\n"
        noted = self._log.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
        promised = {
            "body": text(body),
            "integratedTime": int(at.timestamp()),
            "logID": log_id.hex(),
            "logIndex": 0,
        }
        promise = self._log.sign(rfc8785.dumps(promised), ec.ECDSA(hashes.SHA256()))
        return {
            "logIndex": "0",
            "logId": {"keyId": text(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(int(at.timestamp())),
            "inclusionPromise": {"signedEntryTimestamp": text(promise)},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 rekor.example {text(log_id[:4] + noted)}\n"},
            },
            "canonicalizedBody": text(body),
        }


def _length(data: bytes) -> bytes:
    if len(data) < 128:
        return bytes([len(data)])
    size = len(data).to_bytes(2, "big").lstrip(b"\0")
    return bytes([0x80 | len(size)]) + size
