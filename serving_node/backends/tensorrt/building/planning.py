"""From a plan and the inputs of an ONNX file to complete optimisation profiles. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving_node.contract.engine_builds import BuildPlan, BuildProfile, InputBounds
from serving_node.contract.errors import ErrorCode
from serving_node.core.errors import InferenceError


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """One input of the parsed file; -1 in ``shape`` is a dynamic dimension."""

    name: str
    shape: tuple[int, ...]
    is_shape: bool = False


def complete_profiles(inputs: Sequence[NetworkInput], plan: BuildPlan) -> tuple[BuildProfile, ...]:
    """Return the profiles of the engine: bounds for every dynamic input and every shape tensor; none if all is fixed.

    Raises:
        InferenceError: INVALID_ARG, the plan does not fit the file.
    """
    open_inputs = [one for one in inputs if -1 in one.shape or one.is_shape]
    by_name = {one.name: one for one in inputs}
    if not plan.profiles:
        bounds = tuple(_batches(one, plan) for one in open_inputs)
        return (BuildProfile(bounds),) if bounds else ()
    for profile in plan.profiles:
        for given in profile.inputs:
            if given.input not in by_name:
                raise _bad(f"the file has no input '{given.input}', only {', '.join(sorted(by_name))}")
            _check(by_name[given.input], given)
        described = {(given.input, given.of_values) for given in profile.inputs}
        for one in open_inputs:
            if (-1 in one.shape and (one.name, False) not in described) or (
                one.is_shape and (one.name, True) not in described
            ):
                raise _bad(_missing(one))
    return plan.profiles


def _batches(one: NetworkInput, plan: BuildPlan) -> InputBounds:
    """Return the bounds of an input only whose rows vary."""
    if one.is_shape or -1 in one.shape[1:] or not plan.max_batch_size:
        raise _bad(_missing(one))
    rest = one.shape[1:]
    best = plan.best_batch_size or plan.max_batch_size
    return InputBounds(one.name, (1, *rest), (best, *rest), (plan.max_batch_size, *rest))


def _check(one: NetworkInput, given: InputBounds) -> None:
    if given.of_values:
        if not one.is_shape:
            raise _bad(f"input '{one.name}' is no shape tensor, so its elements have no bounds")
        return
    for shape in (given.least, given.best, given.most):
        fits = len(shape) == len(one.shape) and all(
            want in (-1, dim) for want, dim in zip(one.shape, shape, strict=True)
        )
        if not fits:
            raise _bad(f"the shape {list(shape)} does not fit input '{one.name}', which has {list(one.shape)}")


def _missing(one: NetworkInput) -> str:
    if one.is_shape:
        return f"input '{one.name}' is a shape tensor: the plan must say the least, best and largest of its elements"
    return (
        f"input '{one.name}' has the dynamic shape {list(one.shape)}: the plan must say the least, best and largest of"
        " its shape"
    )


def _bad(sentence: str) -> InferenceError:
    return InferenceError(ErrorCode.INVALID_ARG, sentence)
