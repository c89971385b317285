"""Object stores of the clouds, through obstore. Imported only when a repository is in one. Blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import BaseError

from serving_node.repository.cloud_credentials import Credentials
from serving_node.repository.mirror_plan import StoredObject
from serving_node.repository.remote import StoreError
from serving_node.repository.remote_location import RemoteLocation, StoreKind

_PIECE_BYTES = 4 * 1024 * 1024
# An object is read in parts, because the deadline is for a whole answer: 64 MiB in 2 minutes is slow enough for all.
_PART_BYTES = 64 * 1024 * 1024
_TIMEOUT = timedelta(seconds=120)
_CONNECT_TIMEOUT = timedelta(seconds=10)
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
# What tells most comes first.
_STATUS = (r"<Code>(\w+)</Code>", r"(error sending request)", r"status code: (\d{3}[ \w]*)")
_WORDS = {
    "error sending request": "it cannot be reached",
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "access is denied",
    "PreconditionFailed": "it was replaced while it was read",
    # what obstore calls the same for all stores
    "PreconditionError": "it was replaced while it was read",
    "PermissionDeniedError": "access is denied",
    "UnauthenticatedError": "the credentials are refused",
    "NotFoundError": "there is no such object",
    "InvalidAccessKeyId": "the access key is not known",
    "SignatureDoesNotMatch": "the secret key does not fit",
}


class CloudStore:
    """A folder of an object store. See ``remote.ObjectStore``."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield every object below a prefix."""
        base = self._full(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        try:
            for page in obstore.list(self._store, base or None):
                for meta in page:
                    tag = meta["e_tag"] or f"{meta['last_modified']}/{meta['size']}"
                    if meta["path"] != self._prefix:
                        yield StoredObject(meta["path"][cut:], tag, meta["size"])
        except (BaseError, OSError) as error:
            raise StoreError(_sentence(error)) from None

    def models(self) -> Iterator[str]:
        """Yield the names of the folders directly below."""
        try:
            listing = obstore.list_with_delimiter(self._store, self._prefix or None)
        except (BaseError, OSError) as error:
            raise StoreError(_sentence(error)) from None
        for path in listing["common_prefixes"]:
            yield path.rstrip("/").rpartition("/")[2]

    def read(self, one: StoredObject) -> Iterator[bytes]:
        """Yield the content of an object, all of it as it was listed."""
        try:
            for start in range(0, one.size, _PART_BYTES):
                options: Any = {"range": (start, min(start + _PART_BYTES, one.size))}
                if one.tag.startswith('"'):
                    # an object that is replaced meanwhile must not end in a mixture
                    options["if_match"] = one.tag
                part = obstore.get(self._store, self._full(one.path), options=options)
                for piece in part.stream(min_chunk_size=_PIECE_BYTES):
                    yield bytes(piece)
        except (BaseError, OSError) as error:
            raise StoreError(f"'{one.path}': {_sentence(error)}") from None

    def _full(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)


def open_store(location: RemoteLocation, credentials: Credentials) -> CloudStore:
    """Return the store of a location; nothing is asked of it yet.

    Raises:
        StoreError: the credentials cannot be used.
    """
    try:
        make = {StoreKind.S3: _open_s3, StoreKind.GS: _open_gs, StoreKind.AS: _open_as}[location.kind]
        return CloudStore(make(location, credentials), location.prefix)
    except (BaseError, ValueError, OSError):
        raise StoreError("its address or the credentials for it cannot be used") from None


def _client(location: RemoteLocation) -> Any:
    return {
        "timeout": _TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        "allow_http": location.endpoint.startswith("http://"),
    }


def _open_s3(location: RemoteLocation, credentials: Credentials) -> Any:
    options: dict[str, Any] = {"virtual_hosted_style_request": False, "region": credentials["region"] or "us-east-1"}
    if location.endpoint:
        options["endpoint"] = location.endpoint
    if credentials["key_id"] and credentials["secret_key"]:
        options |= {"access_key_id": credentials["key_id"], "secret_access_key": credentials["secret_key"]}
        if credentials["session_token"]:
            options["session_token"] = credentials["session_token"]
    return obstore.store.S3Store(location.bucket, client_options=_client(location), retry_config=_RETRIES, **options)


def _open_gs(location: RemoteLocation, credentials: Credentials) -> Any:
    options: dict[str, Any] = {}
    if credentials["path"]:
        options["application_credentials"] = credentials["path"]
    return obstore.store.GCSStore(location.bucket, client_options=_client(location), retry_config=_RETRIES, **options)


def _open_as(location: RemoteLocation, credentials: Credentials) -> Any:
    options: dict[str, Any] = {"account_name": credentials["account_str"] or location.account}
    if credentials["account_key"]:
        options["account_key"] = credentials["account_key"]
    if credentials["client_id"]:
        options["client_id"] = credentials["client_id"]
    return obstore.store.AzureStore(location.bucket, client_options=_client(location), retry_config=_RETRIES, **options)


def _sentence(error: Exception) -> str:
    """Return why a store failed. Not its own words: they hold URLs, and with them signatures."""
    if isinstance(error, FileNotFoundError):
        return "there is no such object"
    text = str(error)
    word = next((found[1] for pattern in _STATUS if (found := re.search(pattern, text))), "")
    kind = type(error).__name__
    return _WORDS.get(word) or _WORDS.get(kind) or (f"the store answers {word}" if word else kind)
