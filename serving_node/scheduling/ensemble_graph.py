"""The steps of an ensemble, and which of them run when for one request. Pure; tensors are opaque.

A step runs as soon as all its inputs exist. A step whose outputs nobody asked for, directly or through others, never
runs. Each response of a decoupled step begins an iteration of its own: the steps behind it run once for each, with what
was there before. Source: Triton's ensemble scheduler (core, ensemble_scheduler.cc).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One model in the graph. ``inputs`` and ``outputs`` map names of the model to tensors of the ensemble.

    ``version`` is 0 or less for the latest; ``is_decoupled`` says that the model answers any number of times.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    version: int = -1
    is_decoupled: bool = False


class EnsembleGraph:
    """The graph of an ensemble whose config was validated: each tensor has one producer, nothing is circular."""

    def __init__(self, inputs: Collection[str], outputs: Collection[str], steps: Iterable[Step]) -> None:
        self.inputs = frozenset(inputs)
        self.outputs = frozenset(outputs)
        self.steps = tuple(steps)
        self.is_decoupled = any(step.is_decoupled for step in self.steps)
        self._producer = {tensor: number for number, step in enumerate(self.steps) for tensor in step.outputs.values()}
        self._needed: dict[frozenset[str], frozenset[int]] = {}

    def needed(self, outputs: frozenset[str]) -> frozenset[int]:
        """Return the steps that must run for these outputs, by number."""
        known = self._needed.get(outputs)
        if known is None:
            known = self._needed[outputs] = self._find_needed(outputs)
        return known

    def _find_needed(self, outputs: frozenset[str]) -> frozenset[int]:
        found: set[int] = set()
        wanted = list(outputs)
        while wanted:
            number = self._producer.get(wanted.pop())
            if number is not None and number not in found:
                found.add(number)
                wanted += self.steps[number].inputs.values()
        return frozenset(found)


@dataclass(eq=False, slots=True)
class Iteration(Generic[T]):
    """The tensors that came with one response of a decoupled step; those before it are in its ancestors."""

    parent: Iteration[T] | None = None
    tensors: dict[str, T] = field(default_factory=dict)
    children: list[Iteration[T]] = field(default_factory=list)
    launched: set[int] = field(default_factory=set)
    running: int = 0
    has_answered: bool = False

    def find(self, tensor: str) -> T | None:
        """Return a tensor of this iteration or of those before it."""
        at: Iteration[T] | None = self
        while at is not None:
            if tensor in at.tensors:
                return at.tensors[tensor]
            at = at.parent
        return None


@dataclass(frozen=True, eq=False, slots=True)
class Launch(Generic[T]):
    """One run of a step: the inputs by the model's names. It is asked for all outputs that the ensemble maps."""

    step: int
    iteration: Iteration[T]
    inputs: dict[str, T]


@dataclass(slots=True)
class Progress(Generic[T]):
    """What follows from an event: steps to run, answers to send, and whether that was all.

    ``is_stuck``: it is over without any answer although the ensemble has to have one.
    """

    launches: list[Launch[T]] = field(default_factory=list)
    answers: list[dict[str, T]] = field(default_factory=list)
    is_over: bool = False
    is_stuck: bool = False


class EnsembleRun(Generic[T]):
    """One request on its way through the graph."""

    def __init__(self, graph: EnsembleGraph, requested: Collection[str]) -> None:
        """``requested`` are the outputs asked for; none means all."""
        self._graph = graph
        self._outputs = frozenset(requested) or graph.outputs
        self._needed = sorted(graph.needed(self._outputs))
        self._root: Iteration[T] = Iteration()
        self._absent: frozenset[str] = frozenset()
        self._running = 0
        self._has_answered = False
        self._is_over = False

    def begin(self, inputs: Mapping[str, T]) -> Progress[T]:
        """Start with the inputs of the request. Optional ones may be missing: the steps run without them."""
        self._absent = self._graph.inputs - inputs.keys()
        self._root.tensors.update(inputs)
        return self._advance(self._root)

    def responded(self, launch: Launch[T], outputs: Mapping[str, T] | None, *, is_final: bool) -> Progress[T]:
        """Note a response of a step: its outputs by the model's names, or None for nothing but the end.

        After ``stop`` nothing follows from it.
        """
        self._running -= is_final
        launch.iteration.running -= is_final
        if self._is_over:
            return Progress(is_over=True)
        step = self._graph.steps[launch.step]
        iteration = launch.iteration
        if outputs is not None:
            if step.is_decoupled:
                iteration = Iteration(parent=launch.iteration)
                launch.iteration.children.append(iteration)
            iteration.tensors.update(
                (step.outputs[name], tensor) for name, tensor in outputs.items() if name in step.outputs
            )
        return self._advance(iteration)

    def stop(self) -> int:
        """End the run, because a step failed or the caller left; return how many steps still run."""
        self._is_over = True
        self._root = Iteration()
        return self._running

    def _advance(self, iteration: Iteration[T]) -> Progress[T]:
        """Return what can happen in an iteration and those behind it, now that it has new tensors."""
        progress: Progress[T] = Progress()
        pending = [iteration]
        while pending:
            at = pending.pop()
            progress.launches += self._launches(at)
            self._answer(at, progress)
            pending += at.children
        self._forget(iteration)
        if not self._running:
            self._is_over = progress.is_over = True
            progress.is_stuck = not self._has_answered and not self._graph.is_decoupled
        return progress

    def _launches(self, iteration: Iteration[T]) -> list[Launch[T]]:
        launches: list[Launch[T]] = []
        for number in self._needed:
            step = self._graph.steps[number]
            if number in iteration.launched or not self._belongs(step.inputs.values(), iteration):
                continue
            inputs: dict[str, T] = {}
            for name, tensor in step.inputs.items():
                if tensor in self._absent:
                    continue
                found = iteration.find(tensor)
                if found is None:
                    break
                inputs[name] = found
            else:
                iteration.launched.add(number)
                iteration.running += 1
                self._running += 1
                launches.append(Launch(number, iteration, inputs))
        return launches

    def _belongs(self, tensors: Collection[str], iteration: Iteration[T]) -> bool:
        """Return whether something about these tensors is new in the iteration; in the first one everything is."""
        return iteration.parent is None or any(tensor in iteration.tensors for tensor in tensors)

    def _answer(self, iteration: Iteration[T], progress: Progress[T]) -> None:
        if iteration.has_answered or not self._belongs(self._outputs, iteration):
            return
        answer: dict[str, T] = {}
        for tensor in self._outputs:
            found = iteration.find(tensor)
            if found is None:
                return
            answer[tensor] = found
        iteration.has_answered = self._has_answered = True
        progress.answers.append(answer)

    def _forget(self, iteration: Iteration[T]) -> None:
        """Let go of iterations in which nothing can happen any more, and of their tensors."""
        at = iteration
        while at.parent is not None and not at.running and not at.children and self._is_complete(at):
            at.parent.children.remove(at)
            at = at.parent

    def _is_complete(self, iteration: Iteration[T]) -> bool:
        """Return whether all that belongs to an iteration was launched and answered."""
        if not iteration.has_answered and self._belongs(self._outputs, iteration):
            return False
        return all(
            number in iteration.launched or not self._belongs(self._graph.steps[number].inputs.values(), iteration)
            for number in self._needed
        )
