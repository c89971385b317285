"""Batches, and the order in which their answers leave. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

from serving_node.core.request import InferenceRequest

Answer = TypeVar("Answer")


class Batch:
    """Requests that run together. ``rows`` is the sum of their batch sizes, at most the model's maximum.

    Ownership: whoever holds the batch must answer each request exactly once.
    ``ticket`` counts the batches of a model in the order in which they left the queue.
    """

    __slots__ = ("requests", "rows", "ticket")

    # written out, not made by ``dataclass``: see core.request
    def __init__(self, requests: list[InferenceRequest], rows: int, ticket: int = 0) -> None:
        self.requests = requests
        self.rows = rows
        self.ticket = ticket


class ReleaseOrder(Generic[Answer]):
    """Holds finished batches back until all earlier ones are finished (``preserve_ordering``)."""

    __slots__ = ("_held", "_next")

    def __init__(self) -> None:
        self._held: dict[int, Answer] = {}
        self._next = 0

    def finish(self, ticket: int, answer: Answer) -> list[Answer]:
        """Note that the batch with ``ticket`` is done; return what may leave now, in order."""
        self._held[ticket] = answer
        released: list[Answer] = []
        while self._next in self._held:
            released.append(self._held.pop(self._next))
            self._next += 1
        return released
