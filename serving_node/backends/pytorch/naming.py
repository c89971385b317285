"""Which argument of a model a config's input is, and which of its results an output. Pure.

Source: the naming rules of Triton's PyTorch backend. A name is what the model itself calls a tensor, or anything
followed by two underscores and its place (``INPUT__0``); otherwise all inputs are meant in the config's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving_node.contract.errors import ErrorCode
from serving_node.contract.model_config.padding import padding_inputs
from serving_node.contract.model_config.state_rules import control_inputs, state_inputs, state_outputs
from serving_node.core.errors import InferenceError

if TYPE_CHECKING:
    from serving_node.contract.proto.model_config_pb2 import ModelConfig


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of a model's arguments or results.

    ``places``: every name that the model has for one -> its place; ``count`` None when it is not known; ``required``
    how many must be there. ``ordered``: names that are nothing to the model are taken in the config's order.
    """

    places: Mapping[str, int]
    count: int | None
    required: int = 0
    ordered: bool = True


def input_places(config: ModelConfig, side: Side) -> dict[str, int]:
    """Return the place of each input of a config, also of those that the server adds to requests.

    Raises:
        InferenceError: INVALID_ARG, the config does not fit the model; INTERNAL, as Triton has it, for an input of
            the server whose name does not tell its place.
    """
    own = [tensor.name for tensor in config.input]
    made = [tensor.name for tensor in (*control_inputs(config), *state_inputs(config))]
    made += [name for one in config.batch_input for name in one.target_name]
    made += padding_inputs(config)
    total = len(own) + len(made)
    if side.count is not None and not side.required <= total <= side.count:
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"unable to load model '{config.name}', configuration expects {total} inputs, model provides {side.count}",
        )
    places = _places("input", own, side)
    for name in made:
        place = _place(name, side)
        if place is None:
            raise InferenceError(
                ErrorCode.INTERNAL, f"input '{name}' does not follow <name>__<index> naming convention."
            )
        places[name] = place
    taken: dict[int, str] = {}
    for name, place in places.items():
        if side.count is not None and place >= side.count:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"input '{name}' of model '{config.name}' is argument {place}, but the model has {side.count} arguments"
                " and the first is 0",
            )
        if place in taken:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"inputs '{taken[place]}' and '{name}' of model '{config.name}' are the same argument of the model",
            )
        taken[place] = name
    return places


def output_places(config: ModelConfig, side: Side) -> dict[str, int]:
    """Return the place of each output of a config, also of those that the server keeps as states.

    Raises:
        InferenceError: INVALID_ARG, the model has no such result.
    """
    own = [tensor.name for tensor in config.output]
    states = [tensor.name for tensor in state_outputs(config) if tensor.name not in own]
    places = _places("output", [*own, *states], side)
    for name, place in places.items():
        if side.count is not None and place >= side.count:
            raise missing_output(name, side.count)
    return places


def missing_output(name: str, count: int) -> InferenceError:
    """Return the error for an output that the model does not have."""
    return InferenceError(
        ErrorCode.INVALID_ARG,
        f"The output {name} in the model configuration refers to an output index which doesn't exist. This model has"
        f" {count} outputs",
    )


def _places(kind: str, names: Sequence[str], side: Side) -> dict[str, int]:
    found = {name: _place(name, side) for name in names}
    unknown = [name for name, place in found.items() if place is None]
    if unknown and not side.ordered:
        allowed = ", ".join(sorted(side.places))
        raise InferenceError(
            ErrorCode.INVALID_ARG, f"unexpected inference {kind} '{unknown[0]}', allowed {kind}s are: {allowed}"
        )
    if unknown:
        return {name: index for index, name in enumerate(names)}
    return {name: place for name, place in found.items() if place is not None}


def _place(name: str, side: Side) -> int | None:
    if name in side.places:
        return side.places[name]
    index = name.partition("__")[2]
    return int(index) if index.isascii() and index.isdigit() else None
