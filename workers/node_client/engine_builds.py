"""TensorRT engines that a node builds from ONNX: order, follow, cancel, and bring the engine here.

Only Flotilla's own nodes build. Every function raises NodeClientError; a node that cannot build says why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

from django.utils.translation import gettext as _

from serving_node.contract.control import FileRef
from serving_node.contract.engine_builds import BuildOrder, BuildStatus
from serving_node.contract.errors import ContractError
from workers.node_client.errors import NodeClientError, NodeErrorCode

_PIECE_BYTES = 8 * 1024**2
_WAIT_SECONDS = 30.0


class AdminCalls(Protocol):
    """What is needed of a client."""

    async def admin(
        self, method: str, path: str, *, body: Any = None, query: dict[str, str] | None = None, wait: float = 0.0
    ) -> bytes:
        """Call the node's admin API."""


async def start_engine_build(node: AdminCalls, order: BuildOrder) -> BuildStatus:
    """Let the node build an engine; the same order again is the same build, or the engine that is there already."""
    return _status(await node.admin("POST", "/v1/builds", body=order.to_json()))


async def engine_build(
    node: AdminCalls, build: str, *, after: int | None = None, timeout_seconds: float = _WAIT_SECONDS
) -> BuildStatus:
    """Return how far a build is: at once, or as soon as its sequence is above ``after``."""
    query = {} if after is None else {"after": str(after), "timeout": f"{timeout_seconds:g}"}
    wait = 0.0 if after is None else timeout_seconds
    return _status(await node.admin("GET", f"/v1/builds/{build}", query=query, wait=wait))


async def cancel_engine_build(node: AdminCalls, build: str) -> BuildStatus:
    """Stop a build; one that is over stays as it is."""
    return _status(await node.admin("DELETE", f"/v1/builds/{build}", wait=_WAIT_SECONDS))


async def fetch_engine(node: AdminCalls, engine: FileRef) -> AsyncIterator[bytes]:
    """Yield the content of an engine in pieces. What came is to be trusted only when this ends without an error."""
    digest, offset = hashlib.sha256(), 0
    while offset < engine.size:
        query = {"offset": str(offset), "size": str(_PIECE_BYTES)}
        piece = await node.admin("GET", f"/v1/blobs/{engine.sha256}", query=query, wait=_WAIT_SECONDS)
        if not piece:
            break
        digest.update(piece)
        offset += len(piece)
        yield piece
    if offset != engine.size or digest.hexdigest() != engine.sha256:
        raise NodeClientError(NodeErrorCode.PROTOCOL, _("The engine did not come whole from the node."))


def _status(answer: bytes) -> BuildStatus:
    try:
        return BuildStatus.from_json(json.loads(answer))
    except (ContractError, ValueError) as error:
        raise NodeClientError(NodeErrorCode.PROTOCOL, _("The node's answer is no state of a build.")) from error
