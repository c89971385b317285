"""Digests of configs, manifests and plans: SHA-256 over RFC 8785 JSON, as 64 lower-case hex digits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import rfc8785

from serving_node.contract.control import FileRef
from serving_node.contract.errors import ContractError
from serving_node.contract.model_config import canonical_json
from serving_node.contract.proto.model_config_pb2 import ModelConfig

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST_SIZE = 2**53 - 1


def config_digest(config: ModelConfig) -> str:
    """Return the digest of a config: equal configs, equal digests, whatever text they came from."""
    return _sha256(canonical_json(config))


def manifest_digest(files: Iterable[FileRef]) -> str:
    """Return the digest of a version's files, in any order: over ``[[path, size, sha256], ...]`` sorted by path.

    Raises:
        ContractError: a path that is absolute, not normalised or there twice; a digest or size that cannot be one.
    """
    rows = sorted((file.path, file.size, file.sha256) for file in files)
    previous = None
    for path, size, sha256 in rows:
        _check_path(path)
        if path == previous:
            raise ContractError(f"file '{path}' is listed twice", field=path)
        if not 0 <= size <= _LARGEST_SIZE:
            raise ContractError(f"file '{path}' cannot have a size of {size} bytes", field=path)
        if not _SHA256.fullmatch(sha256):
            raise ContractError(f"file '{path}': '{sha256}' is not a SHA-256 in lower-case hex", field=path)
        previous = path
    return _sha256(rfc8785.dumps(rows))


def plan_digest(plan: dict[str, Any]) -> str:
    """Return the digest of a plan: any JSON object of strings, numbers, booleans, nulls, lists and objects.

    Raises:
        ContractError: a value that is not JSON, not finite, or an integer beyond 2^53 - 1.
    """
    try:
        return _sha256(rfc8785.dumps(plan))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise ContractError(f"the plan has no canonical JSON: {error}") from None


def _check_path(path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or not path.isprintable():
        raise ContractError(f"'{path}' is not a normalised relative path", field=path)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
