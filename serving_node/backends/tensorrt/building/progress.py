"""One number for the progress of a build, from the phases within phases that TensorRT tells. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Phase:
    parent: str
    steps: int
    done: int = 0


class BuildProgress:
    """``fraction`` is from 0 to 1 and never falls; ``phase`` is the innermost one that began last."""

    def __init__(self) -> None:
        self.fraction = 0.0
        self.phase = ""
        self._phases: dict[str, _Phase] = {}

    def start(self, name: str, parent: str, steps: int) -> None:
        """A phase begins, within a step of ``parent`` if that is not empty."""
        self._phases[name] = _Phase(parent, max(steps, 1))
        self.phase = name
        self._update()

    def step(self, name: str, step: int) -> None:
        """A step of a phase is done, counted from 0."""
        phase = self._phases.get(name)
        if phase is not None:
            phase.done = min(max(phase.done, step + 1), phase.steps)
            self._update()

    def finish(self, name: str) -> None:
        """A phase ends, maybe before all of its steps. Its share counts when its parent's step is told."""
        phase = self._phases.get(name)
        if phase is None:
            return
        phase.done = phase.steps
        self._update()
        del self._phases[name]
        self.phase = phase.parent if phase.parent in self._phases else self.phase

    def _update(self) -> None:
        roots = [name for name, phase in self._phases.items() if phase.parent not in self._phases]
        share = max((self._share(name) for name in roots), default=0.0)
        self.fraction = min(max(self.fraction, share), 1.0)

    def _share(self, name: str) -> float:
        phase = self._phases[name]
        inner = max((self._share(one) for one, other in self._phases.items() if other.parent == name), default=0.0)
        return min((phase.done + (inner if phase.done < phase.steps else 0.0)) / phase.steps, 1.0)
