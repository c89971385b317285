"""Which optimisation profiles an instance uses, and which one fits a batch. Pure, with Triton's sentences.

Source: the profile handling of Triton's TensorRT backend. Where that measures the distance of later dimensions
against the dimension before, this one measures it against the dimension itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from serving_node.backends.tensorrt.facts import Bounds, EngineFacts, Profile, Shape
from serving_node.contract.errors import ErrorCode
from serving_node.contract.proto.model_config_pb2 import ModelConfig, ModelInstanceGroup
from serving_node.core.errors import InferenceError

# what stands behind the name of a group in that of an instance (scheduling.resizing)
_NUMBER = re.compile(r"_\d+(?:_new)*$")


def group_of(config: ModelConfig, label: str) -> ModelInstanceGroup:
    """Return the instance group that an instance of this name belongs to."""
    name = _NUMBER.sub("", label)
    return next((group for group in config.instance_group if group.name == name), config.instance_group[0])


def instance_profiles(facts: EngineFacts, names: Sequence[str], instance: str) -> tuple[Profile, ...]:
    """Return the profiles that an instance group names, in the engine's order; without any, the first.

    Raises:
        InferenceError: INVALID_ARG, the engine has no such profile.
    """
    count = len(facts.profiles)
    for name in names:
        if int(name) >= count:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"Can not set the specified optimization profile {name}[{int(name)}] for {instance}. Expected"
                f" optimization profile index range 0-{count - 1}",
            )
    return tuple(facts.profiles[index] for index in sorted({int(name) for name in names} or {0}))


def largest_batch(facts: EngineFacts, config: ModelConfig) -> int:
    """Return the largest first dimension that all inputs take in one of the profiles that the config names.

    0 when an input has no dimension at all: such an engine has no batches.

    Raises:
        InferenceError: INTERNAL, as Triton: the engine has no such profile.
    """
    names = [name for group in config.instance_group for name in group.profile]
    for name in names:
        if not name.isdecimal() or int(name) >= len(facts.profiles):
            raise InferenceError(
                ErrorCode.INTERNAL,
                f"unable to autofill for '{config.name}', configuration specified invalid profile {name} . Number of"
                f" profiles supported by TensorRT engine: {len(facts.profiles)}",
            )
    wanted = {int(name) for name in names} or {0}
    return max(_largest_batch(facts, facts.profiles[index]) for index in wanted)


def _largest_batch(facts: EngineFacts, profile: Profile) -> int:
    bounds = [(profile.values if tensor.is_shape else profile.shapes).get(tensor.name) for tensor in facts.inputs]
    return min(((one.most[0] if one.most else 0) for one in bounds if one is not None), default=0)


def choose(profiles: Sequence[Profile], shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> Profile:
    """Return the profile that allows a batch and is tuned nearest to it; the first one when none allows it."""
    if len(profiles) == 1:
        return profiles[0]
    fitting = [profile for profile in profiles if _fits(profile, shapes, values)]
    return min(fitting, key=lambda profile: _distance(profile, shapes, values), default=profiles[0])


def _fits(profile: Profile, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> bool:
    return all(_within(shape, profile.shapes[name]) for name, shape in shapes.items()) and all(
        _within(given, profile.values[name]) for name, given in values.items() if name in profile.values
    )


def _within(given: Sequence[int], bounds: Bounds) -> bool:
    return len(given) == len(bounds.most) and all(
        low <= one <= high for low, one, high in zip(bounds.least, given, bounds.most, strict=True)
    )


def _distance(profile: Profile, shapes: Mapping[str, Shape], values: Mapping[str, Sequence[int]]) -> int:
    pairs = [(shape, profile.shapes[name].best) for name, shape in shapes.items()]
    pairs += [(tuple(given), profile.values[name].best) for name, given in values.items() if name in profile.values]
    return sum(abs(one - best) for given, wanted in pairs for one, best in zip(given, wanted, strict=True))


def check_shape(name: str, shape: Shape, bounds: Bounds, instance: str) -> None:
    """Refuse a shape that the profile does not allow. Raises InferenceError INTERNAL, as Triton."""
    detail = ""
    if len(shape) != len(bounds.most):
        detail = f"model expected {len(bounds.most)} dimensions but received {len(shape)} dimensions"
    else:
        for index, (low, given, high) in enumerate(zip(bounds.least, shape, bounds.most, strict=True)):
            if not low <= given <= high:
                detail = (
                    f"model expected the shape of dimension {index} to be between {low} and {high} but received {given}"
                )
                break
    if detail:
        raise InferenceError(
            ErrorCode.INTERNAL,
            f"request specifies invalid shape for input '{name}' for {instance}. Error details: {detail}",
        )


def check_values(values: Sequence[int], bounds: Bounds) -> None:
    """Refuse elements of a shape tensor that the profile does not allow. Raises InferenceError INVALID_ARG."""
    if len(values) != len(bounds.most):
        raise InferenceError(
            ErrorCode.INVALID_ARG,
            f"mismatch between the number of shape values. Expecting {len(bounds.most)}. Got {len(values)}",
        )
    for index, (low, given, high) in enumerate(zip(bounds.least, values, bounds.most, strict=True)):
        if not low <= given <= high:
            raise InferenceError(
                ErrorCode.INVALID_ARG,
                f"The shape value at index {index} is expected to be in range from {low} to {high}, Got: {given}",
            )


def largest_shapes(
    facts: EngineFacts, profile: Profile, config: ModelConfig
) -> tuple[dict[str, Shape], dict[str, tuple[int, ...]]]:
    """Return the largest shapes of inputs, and values of shape tensors, that requests of this config can have.

    The profile's, cut down to ``max_batch_size`` and to dimensions that the config fixes, so that no memory is taken
    for what cannot come.
    """
    dims = {
        tensor.name: tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
        for tensor in config.input
        if not tensor.allow_ragged_batch
    }
    shapes: dict[str, Shape] = {}
    for tensor in facts.inputs:
        most = profile.shapes[tensor.name].most
        least = profile.shapes[tensor.name].least
        given = dims.get(tensor.name)
        if given is not None and not tensor.is_shape:
            full = ((config.max_batch_size, *given)) if config.max_batch_size > 0 else given
            if len(full) == len(most):
                most = tuple(
                    high if want < 0 else max(low, min(high, want))
                    for low, high, want in zip(least, most, full, strict=True)
                )
        shapes[tensor.name] = most
    values = {name: bounds.most for name, bounds in profile.values.items()}
    if config.max_batch_size > 0:
        values = {name: (min(most[0], config.max_batch_size), *most[1:]) for name, most in values.items() if most}
    return shapes, values
