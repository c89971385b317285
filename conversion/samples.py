"""Inputs that both files of a conversion are asked: given ones, or random ones by the signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conversion.errors import ConversionFailed
from serving_node.contract.signature import ModelSignature

Array = npt.NDArray[np.generic]

DYNAMIC_SIZE = 8
"""Size of dynamic dimensions that are no batch, unless somebody says otherwise."""

_TYPES: dict[str, type] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
# share of values left out where a model knows how to do without
_MISSING = 0.1
_WORDS = np.array(["amber", "birch", "cedar", "delta", "ember"], dtype=object)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A dimension that a request decides. Those of one ``symbol`` have one size, from ``low`` to ``high``."""

    symbol: str
    low: int = 1
    high: int | None = None

    def clipped(self, size: int) -> int:
        """Return the nearest size that is allowed."""
        return max(self.low, size if self.high is None else min(size, self.high))


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: wire name of its type, and its dimensions, the batch too. ``may_miss``: NaN stands for no value."""

    name: str
    datatype: str
    shape: tuple[int | Dynamic, ...]
    may_miss: bool = False


def specs_of(signature: ModelSignature) -> tuple[InputSpec, ...]:
    """Return the inputs of a signature; first dimensions that are dynamic are one batch, others stand alone."""

    def dimension(tensor: str, index: int, size: int) -> int | Dynamic:
        return size if size >= 0 else Dynamic("batch" if index == 0 else f"{tensor}.{index}")

    return tuple(
        InputSpec(one.name, one.datatype, tuple(dimension(one.name, i, size) for i, size in enumerate(one.shape)))
        for one in signature.inputs
    )


def random_inputs(
    specs: Sequence[InputSpec],
    *,
    batch: int,
    seed: int,
    integers: tuple[int, int] = (0, 9),
    dynamic_size: int = DYNAMIC_SIZE,
) -> dict[str, Array]:
    """Return one array for each input; the same arguments give the same arrays.

    Dynamic first dimensions become ``batch``, others ``dynamic_size``, both within their bounds. Floats are standard
    normal, whole numbers from ``integers`` (both ends included, as far as the type holds them), texts words.

    Raises:
        ConversionFailed: a type that no sample can be drawn for.
    """
    generator = np.random.default_rng(seed)
    batches = {spec.shape[0].symbol for spec in specs if spec.shape and isinstance(spec.shape[0], Dynamic)}

    def size(dimension: int | Dynamic) -> int:
        if isinstance(dimension, int):
            return dimension
        return dimension.clipped(batch if dimension.symbol in batches else dynamic_size)

    return {
        spec.name: _draw(generator, spec, tuple(size(dimension) for dimension in spec.shape), integers)
        for spec in specs
    }


def _draw(generator: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], integers: tuple[int, int]) -> Array:
    kind = _TYPES.get(spec.datatype)
    if kind is None:
        raise ConversionFailed(f"No sample can be drawn for input '{spec.name}' of type {spec.datatype}; give some.")
    if kind is np.object_:
        return np.asarray(generator.choice(_WORDS, size=shape), dtype=object)
    if kind is np.bool_:
        return generator.integers(0, 2, size=shape).astype(np.bool_)
    if np.issubdtype(kind, np.floating):
        values: npt.NDArray[Any] = generator.standard_normal(size=shape).astype(kind)
        if spec.may_miss:
            values[generator.random(size=shape) < _MISSING] = np.nan
        return values
    limits = np.iinfo(kind)
    low, high = max(integers[0], int(limits.min)), min(integers[1], int(limits.max))
    if low > high:
        raise ConversionFailed(f"Input '{spec.name}' of type {spec.datatype} holds no number of the range given.")
    return generator.integers(low, high, size=shape, dtype=np.dtype(kind), endpoint=True)


def given_inputs(path: Path, specs: Sequence[InputSpec]) -> dict[str, Array]:
    """Return the arrays of an .npz file, one for each input by name.

    Raises:
        ConversionFailed: the file cannot be read, a name is missing or unknown, or an array does not fit its input.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise ConversionFailed(f"{path.name} is no .npz file of plain arrays ({type(error).__name__}).") from None
    names = [spec.name for spec in specs]
    for name in names:
        if name not in arrays:
            raise ConversionFailed(f"{path.name} has no array '{name}'; it needs {', '.join(names)}.")
    for name in arrays:
        if name not in names:
            raise ConversionFailed(f"{path.name} has an array '{name}', but the inputs are {', '.join(names)}.")
    return {spec.name: _fitted(spec, arrays[spec.name]) for spec in specs}


def _fitted(spec: InputSpec, array: Array) -> Array:
    kind = _TYPES.get(spec.datatype, np.object_)
    is_text = array.dtype.kind in "US"
    if (kind is np.object_) != is_text or not (is_text or np.can_cast(array.dtype, kind, "same_kind")):
        raise ConversionFailed(f"Input '{spec.name}' is of type {spec.datatype}, but the sample is {array.dtype}.")
    fits = array.ndim == len(spec.shape) and all(
        isinstance(wanted, Dynamic) or wanted == size for wanted, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(one) if isinstance(one, int) else "-1" for one in spec.shape)
        raise ConversionFailed(f"Input '{spec.name}' has the shape [{wanted}], but the sample {list(array.shape)}.")
    return array.astype(kind)


def rows_of(inputs: Mapping[str, Array]) -> int:
    """Return the first dimension of the first input that has one; 1 when none has."""
    sizes: Iterator[int] = (array.shape[0] for array in inputs.values() if array.ndim)
    return next(sizes, 1)
