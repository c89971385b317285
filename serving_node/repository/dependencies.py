"""Which ensembles use which models, and in what order models come and go because of it. Pure.

Steps name models; a name stands for all models of that name, also where it is in several repositories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from serving_node.repository.model_folder import ModelId


class Dependencies:
    """The known ensembles, those that cannot be served included, with the names of the models of their steps."""

    def __init__(self) -> None:
        self._steps: dict[ModelId, tuple[str, ...]] = {}

    def put(self, ensemble: ModelId, steps: Iterable[str]) -> None:
        """Note an ensemble, or what it uses now."""
        self._steps[ensemble] = tuple(dict.fromkeys(steps))

    def drop(self, model: ModelId) -> None:
        """Forget an ensemble; harmless for other models."""
        self._steps.pop(model, None)

    def steps(self, name: str) -> tuple[str, ...]:
        """Return the models that the ensembles of this name use directly; none for other models."""
        return tuple(step for key, steps in self._steps.items() if key.name == name for step in steps)

    def users(self, name: str) -> list[ModelId]:
        """Return the ensembles that use a model directly."""
        return [key for key, steps in self._steps.items() if name in steps]

    def dependents(self, names: Iterable[str]) -> list[ModelId]:
        """Return all ensembles that use one of these models, also through others; those that are used come first."""
        found: dict[ModelId, None] = {}
        waiting = list(names)
        while waiting:
            for key in self.users(waiting.pop()):
                if key not in found:
                    found[key] = None
                    waiting.append(key.name)
        return self.in_order(found)

    def in_order(self, models: Collection[ModelId]) -> list[ModelId]:
        """Return models so that each comes after those that it uses; circles are cut somewhere."""
        ordered: dict[ModelId, None] = {}
        seen: set[ModelId] = set()
        by_name: dict[str, list[ModelId]] = {}
        for key in sorted(models):
            by_name.setdefault(key.name, []).append(key)

        def visit(key: ModelId) -> None:
            if key in seen:
                return
            seen.add(key)
            for step in self._steps.get(key, ()):
                for used in by_name.get(step, ()):
                    visit(used)
            ordered[key] = None

        for key in sorted(models):
            visit(key)
        return list(ordered)

    def circle(self, ensemble: ModelId) -> str:
        """Return Triton's sentence when an ensemble uses itself, through others or not; else nothing."""
        waiting, seen = [ensemble.name], set[str]()
        while waiting:
            name = waiting.pop()
            for step in self.steps(name):
                if step == ensemble.name:
                    return f"circular dependency between ensembles: {step} -> ... -> {name} -> {step}"
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return ""
