"""Which workers wait for each other because their models ask other models. Pure.

A request waits for an instance of its model, and an instance for the requests that its batch made. When all instances
that could run a request wait, one after another, for that request, none of them ever ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from serving_node.core.request import InferenceRequest

Node = TypeVar("Node")


def never_ends(node: Node, waits: Mapping[Node, Sequence[frozenset[Node]]]) -> bool:
    """Return whether ``node`` waits for ever.

    ``waits`` has, for each node that waits, one set for each thing that it waits for: the nodes of which one must
    become free. An empty set stands for what is outside, and comes by itself.
    """
    stuck = set(waits)
    while True:
        free = {one for one in stuck if not any(wanted and wanted <= stuck for wanted in waits[one])}
        if not free:
            return node in stuck
        stuck -= free


class AskingWorker(Protocol):
    """A worker whose model may ask other models."""

    def waits_for(self) -> list[InferenceRequest]:
        """Return the requests to other models that the running batch has made and that have no answer."""

    def runs(self, request: InferenceRequest) -> bool:
        """Return whether the worker has the request."""


class WaitingWorkers:
    """The live workers of a node by the model that they run. Changes come from any thread."""

    def __init__(self) -> None:
        self._workers: dict[tuple[str, int], tuple[AskingWorker, ...]] = {}

    def add(self, name: str, version: int, worker: AskingWorker) -> Callable[[], None]:
        """Take a worker in; return what takes it out again."""
        key = (name, version)
        self._workers = {**self._workers, key: (*self._workers.get(key, ()), worker)}

        def remove() -> None:
            left = tuple(one for one in self._workers.get(key, ()) if one is not worker)
            self._workers = {**self._workers, key: left}

        return remove

    def would_never_end(self, caller: AskingWorker, request: InferenceRequest) -> bool:
        """Return whether a request, which counts as made, can never run: all that could run it wait for the caller."""
        if not all(worker.waits_for() for worker in self._able(request)):
            return False
        everybody = [worker for workers in self._workers.values() for worker in workers]
        waits = {worker: self._wanted(worker.waits_for()) for worker in everybody}
        return never_ends(caller, {worker: wanted for worker, wanted in waits.items() if wanted})

    def _wanted(self, requests: Iterable[InferenceRequest]) -> list[frozenset[AskingWorker]]:
        wanted: list[frozenset[AskingWorker]] = []
        for request in requests:
            able = self._able(request)
            wanted.append(frozenset([worker for worker in able if worker.runs(request)] or able))
        return wanted

    def _able(self, request: InferenceRequest) -> list[AskingWorker]:
        """Return the workers that may run a request; none for models of other backends."""
        version = request.model_version
        return [
            worker
            for (name, number), workers in self._workers.items()
            if name == request.model_name and (not version or version == str(number))
            for worker in workers
        ]
