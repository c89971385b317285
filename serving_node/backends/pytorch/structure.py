"""The names of a program's inputs and outputs, from the nested containers that it takes and gives.

A program takes positional and keyword arguments that may be containers of tensors, and gives such a container; tensors
have places in the order in which PyTorch flattens them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.utils._pytree as pytree


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor. ``path`` is its name in Triton's configs for AOTInductor packages: ``ARGS[0]``, ``RESULT[y]``."""

    name: str
    path: str


def input_leaves(spec: Any, arguments: Sequence[str] = ()) -> list[Leaf]:
    """Return the inputs in order. ``arguments``: one name for each, where the file has names.

    Inputs in a dict that is the only argument are called by its keys; without names, keyword arguments by theirs and
    the others ``INPUT__0``, ``INPUT__1``...
    """
    paths = _paths(spec)
    only_dict = {path[:2] for path in paths} == {(0, 0)} and all(
        len(path) == 3 and isinstance(path[2], str) for path in paths
    )
    leaves = []
    for index, path in enumerate(paths):
        if only_dict:
            name = str(path[2])
        elif index < len(arguments):
            name = arguments[index]
        else:
            name = str(path[1]) if path[0] == 1 and len(path) == 2 else f"INPUT__{index}"
        leaves.append(Leaf(name, ("KWARGS" if path[0] else "ARGS") + _brackets(path[1:])))
    return leaves


def output_leaves(spec: Any) -> list[Leaf]:
    """Return the outputs in order: called by the keys of a dict or the fields of a class, else ``OUTPUT__0``..."""
    return [
        Leaf(
            path[0] if len(path) == 1 and isinstance(path[0], str) else f"OUTPUT__{index}",
            f"RESULT{_brackets(path)}",
        )
        for index, path in enumerate(_paths(spec))
    ]


def places(leaves: Sequence[Leaf]) -> dict[str, int]:
    """Return every name of the leaves with its place."""
    found = {leaf.path: index for index, leaf in enumerate(leaves)}
    return found | {leaf.name: index for index, leaf in enumerate(leaves)}


def _paths(spec: Any) -> list[tuple[str | int, ...]]:
    example = pytree.tree_unflatten(range(spec.num_leaves), spec)
    return [tuple(_step(key) for key in path) for path, _ in pytree.tree_flatten_with_path(example)[0]]


def _step(key: Any) -> str | int:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            step = getattr(key, attribute)
            return step if isinstance(step, int) else str(step)
    return str(key)


def _brackets(path: Sequence[str | int]) -> str:
    return "".join(f"[{step}]" for step in path)
