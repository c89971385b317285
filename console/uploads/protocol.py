"""The words of tus 1.0.0, as pure functions over headers. Source: https://tus.io/protocols/resumable-upload."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

VERSION = "1.0.0"
EXTENSIONS = "creation,expiration,checksum,termination,concatenation"
# Two of our own: the digest of everything from the first byte to the end of the chunk, which both sides have anyway.
SHA256_PREFIX, XXH3_PREFIX = "sha256-prefix", "xxh3-prefix"
_DIGEST_BYTES = {"sha1": 20, "sha256": 32, SHA256_PREFIX: 32, XXH3_PREFIX: 16}
ALGORITHMS = tuple(_DIGEST_BYTES)
CHUNK_TYPE = "application/offset+octet-stream"
CHECKSUM_MISMATCH = 460
MAX_METADATA = 8192


class ProtocolError(Exception):
    """A request that tus refuses. ``status`` is the HTTP number of the answer."""

    def __init__(self, status: int, detail: str, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.headers = dict(headers or {})


def storage_full() -> ProtocolError:
    """Return the refusal for a disk without room."""
    return ProtocolError(507, _("The server's disk is full."), "storage_full")


@dataclass(frozen=True, slots=True)
class Checksum:
    """What the client says the chunk hashes to, or all up to the end of it."""

    algorithm: str
    digest: bytes

    @property
    def is_of_prefix(self) -> bool:
        """Whether it is over all bytes of the upload so far."""
        return self.algorithm in (SHA256_PREFIX, XXH3_PREFIX)

    def hasher(self) -> Any:
        """Return a fresh hashlib object for the bytes of the chunk."""
        return hashlib.new(self.algorithm, usedforsecurity=False)


def require_version(headers: Mapping[str, str]) -> None:
    """Refuse another protocol version with 412."""
    if headers.get("tus-resumable") != VERSION:
        raise ProtocolError(412, _("Send Tus-Resumable: 1.0.0."), "tus_version")


def read_length(headers: Mapping[str, str], most: int) -> int:
    """Return Upload-Length in bytes; more than ``most`` is 413."""
    if "upload-defer-length" in headers:
        raise ProtocolError(400, _("Uploads of unknown length are not supported."), "upload_length")
    length = _whole(headers, "upload-length")
    if length > most:
        raise ProtocolError(
            413, _("The file is larger than the limit of %(most)d bytes.") % {"most": most}, "too_large"
        )
    return length


def read_offset(headers: Mapping[str, str]) -> int:
    """Return Upload-Offset in bytes."""
    return _whole(headers, "upload-offset")


def read_metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Return Upload-Metadata: comma-separated ``key base64`` pairs, a key alone meaning an empty value."""
    text = headers.get("upload-metadata", "")
    if len(text) > MAX_METADATA:
        raise ProtocolError(400, _("Upload-Metadata is too long."), "upload_metadata")
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = pair.partition(" ")
        if key in found:
            raise ProtocolError(400, _("Upload-Metadata names %(key)s twice.") % {"key": key}, "upload_metadata")
        try:
            found[key] = base64.b64decode(value, validate=True).decode() if separator else ""
        except (binascii.Error, ValueError):
            raise ProtocolError(
                400, _("Upload-Metadata: %(key)s is not UTF-8 in base64.") % {"key": key}, "upload_metadata"
            ) from None
    return found


def read_concat(headers: Mapping[str, str]) -> tuple[uuid.UUID, ...] | None:
    """Return the ids in ``Upload-Concat: final;<addresses>``, none for ``partial``; None when it is a plain upload."""
    text = headers.get("upload-concat")
    if text is None:
        return None
    kind, _separator, addresses = text.strip().partition(";")
    if kind == "partial" and not addresses:
        return ()
    try:
        found = tuple(uuid.UUID(address.rstrip("/").rpartition("/")[2]) for address in addresses.split())
    except ValueError:
        found = ()
    if kind != "final" or not found:
        raise ProtocolError(
            400, _("Upload-Concat is “partial”, or “final;” and the addresses of parts."), "upload_concat"
        )
    return found


def read_checksum(headers: Mapping[str, str]) -> Checksum | None:
    """Return Upload-Checksum, or None when the client sends none. An unknown algorithm is 400."""
    text = headers.get("upload-checksum")
    if text is None:
        return None
    algorithm, _space, encoded = text.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise ProtocolError(
            400, _("Upload-Checksum knows %(names)s.") % {"names": ", ".join(ALGORITHMS)}, "checksum_algorithm"
        )
    try:
        digest = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    checksum = Checksum(algorithm, digest)
    if len(digest) != _DIGEST_BYTES[algorithm]:
        raise ProtocolError(400, _("Upload-Checksum does not hold a digest in base64."), "checksum_malformed")
    return checksum


def require_chunk(headers: Mapping[str, str]) -> None:
    """Refuse another content type with 415."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != CHUNK_TYPE:
        raise ProtocolError(415, _("Send Content-Type: application/offset+octet-stream."), "content_type")


def require_fit(headers: Mapping[str, str], remaining: int) -> None:
    """Refuse a body that says it is longer than what is missing, with 413."""
    if "content-length" in headers and _whole(headers, "content-length") > remaining:
        raise ProtocolError(413, _("The chunk goes past the end of the upload."), "too_large")


def _whole(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ProtocolError(
            400, _("%(name)s must be a whole number of bytes.") % {"name": name}, name.replace("-", "_")
        )
    return int(text)
