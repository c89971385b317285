"""Names of repositories that are not folders here: ``s3://``, ``gs://`` and ``as://``. Pure.

Source: Triton's guide to cloud model repositories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

# A host counts as one only with a port: without it the first part is the bucket.
_S3_HOST = re.compile(r"(https?://)?([0-9A-Za-z.\-]+:[0-9]+)/([^/]+)(?:/(.*))?\Z")
_AZURE = re.compile(r"([^/]+)/([^/?]+)(?:/([^?]*))?(?:\?.*)?\Z")


class StoreKind(StrEnum):
    """Kinds of object stores, as their names begin."""

    S3 = "s3"
    GS = "gs"
    AS = "as"


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    """A folder in an object store.

    ``text`` is what it was called; ``prefix`` has no slash at its ends and is empty for the whole bucket. ``endpoint``
    is a URL when the store has an address of its own; ``account`` is Azure's.
    """

    text: str
    kind: StoreKind
    bucket: str
    prefix: str
    endpoint: str = ""
    account: str = ""

    def __str__(self) -> str:
        return self.text


def is_remote(text: str) -> bool:
    """Tell whether a repository is named by a URL of an object store."""
    return text.startswith(tuple(f"{kind}://" for kind in StoreKind))


def parse_location(text: str) -> RemoteLocation:
    """Return the location that a URL names.

    Raises:
        ValueError: a part of a sentence.
    """
    scheme, _, rest = text.partition("://")
    kind = StoreKind(scheme)
    if kind is StoreKind.AS:
        found = _AZURE.match(rest)
        if found is None:
            raise ValueError(f"'{text}' is not of the form as://account.blob.core.windows.net/container/path")
        host, container, path = found[1], found[2], found[3]
        return RemoteLocation(text, kind, container, _clean(path), f"https://{host}", host.partition(".")[0])
    if kind is StoreKind.S3:
        found = _S3_HOST.match(rest)
        if found is not None:
            return RemoteLocation(text, kind, found[3], _clean(found[4]), (found[1] or "http://") + found[2])
    bucket, _, path = rest.lstrip("/").partition("/")
    if not bucket or ":" in bucket:
        raise ValueError(f"no bucket name found in '{text}'")
    return RemoteLocation(text, kind, bucket, _clean(path))


def _clean(path: str | None) -> str:
    return "/".join(part for part in (path or "").split("/") if part)
