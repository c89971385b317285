"""What every kind of node can be asked, and how to ask from synchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from serving_node.contract.control import Desired, Observed


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node listens. ``admin_secret`` is the bearer secret of its admin port and never printed.

    ``ca_file`` holds the authority that signed its certificates (PEM); empty: those that the system trusts.
    """

    name: str
    admin_url: str
    metrics_url: str
    admin_secret: str = field(repr=False)
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Exposition:
    """One scrape: ``body`` as sent, and the content type that says how to read it."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Which unit of a model answers: the unit itself, else the version, else (both empty) the model's routes."""

    unit: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class BinaryRequest:
    """A v2 request as bytes: ``head_bytes`` of JSON that name the inputs, then their data one after the other."""

    body: bytes
    head_bytes: int


class NodeClient(Protocol):
    """Control of one node. Every method raises NodeClientError and has its own deadline."""

    async def put_desired(self, desired: Desired) -> Observed:
        """Hand over the whole wanted state; the same state twice is success. CONFLICT: the node knows a newer one."""

    async def observed(self, *, after: int | None, timeout_seconds: float) -> Observed:
        """Return what the node sees, as soon as its sequence is above ``after`` or after ``timeout_seconds``.

        With ``after`` None it answers at once.
        """

    async def infer(
        self, model: str, body: dict[str, Any], *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        """Run one v2 JSON request and return the v2 JSON response."""

    async def measure(
        self, model: str, request: BinaryRequest, *, target: Target, timeout_seconds: float
    ) -> dict[str, Any]:
        """Run one request by the unit of ``target``; return the v2 response with ``timing`` and without any data."""

    async def logs(self, *, tail: int) -> list[str]:
        """Return the newest ``tail`` lines of the node's log, oldest first."""

    async def metrics(self) -> Exposition:
        """Scrape the metrics port, with native histograms where the node has them."""

    async def __aenter__(self) -> Self:
        """Open the connection pool."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""


_Answer = TypeVar("_Answer")
Connect = Callable[[NodeAddress], NodeClient]


def call(connect: Connect, address: NodeAddress, ask: Callable[[NodeClient], Awaitable[_Answer]]) -> _Answer:
    """Ask a node from synchronous code (a task): open a client, await ``ask(client)``, close it."""

    async def conversation() -> _Answer:
        async with connect(address) as client:
            return await ask(client)

    return asyncio.run(conversation())
