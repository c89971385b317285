"""A conversion from beginning to end. Runs what the file holds: call it in a process of its own (``process.py``)."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conversion import onnx_file
from conversion.compare import compare, merge
from conversion.errors import ConversionFailed
from conversion.formats import ModelFormat, require_allowed, require_convertible
from conversion.order import BATCHES, TABLE_BATCHES, Order, Step, tolerance_of
from conversion.samples import Array, InputSpec, given_inputs, random_inputs, rows_of
from conversion.sources import OnnxSource, Source
from serving_node.contract.conversion import (
    ConversionReport,
    ConvertedFile,
    OutputComparison,
    SampleInputs,
    judged,
)

if TYPE_CHECKING:
    import onnx

_NETWORKS = frozenset({ModelFormat.ONNX, ModelFormat.TORCH_EXPORT})
Say = Callable[[str], None]
_TOOLS = (
    "onnx",
    "onnxruntime",
    "onnxslim",
    "onnxscript",
    "torch",
    "scikit-learn",
    "skl2onnx",
    "onnxmltools",
    "skops",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
)


def convert(order: Order, say: Say) -> ConversionReport:
    """Write ``order.target`` and return how its answers compare with those of the source. ``say`` hears each step.

    Raises:
        ConversionFailed: one sentence that says what is in the way.
    """
    path, target = Path(order.source), Path(order.target)
    kind = require_convertible(path)
    steps = _steps(order, kind, path.name)
    say(f"Reading {path.name}")
    source = open_source(path, kind, allow_code=order.allow_code)
    model = source.to_onnx()
    full = model  # the last form with all its digits
    for step in steps:
        say(_SENTENCES[step])
        full, model = model, _applied(step, model, order)
    target.write_bytes(onnx_file.packed(model))
    candidate = onnx_file.Session(target, "the converted file")
    order = replace(order, steps=steps, batches=order.batches or (BATCHES if kind in _NETWORKS else TABLE_BATCHES))
    outputs, rows = _compared(source, candidate, model, order, say)
    if Step.FP16 in steps:
        say("Looking for values that FP16 cannot hold")
        outputs += _overflows(full, model, order, source.inputs())
    return judged(
        ConversionReport(
            source=describe(path, kind),
            target=describe(target, ModelFormat.ONNX),
            steps=steps,
            tolerance=tolerance_of(order),
            samples=SampleInputs(rows, None if order.samples else order.seed),
            outputs=outputs,
            tools=_versions(),
            notes=source.notes(),
        )
    )


def open_source(path: Path, kind: ModelFormat, *, allow_code: bool) -> Source:
    """Read a model with its own framework.

    Raises:
        ConversionFailed: damaged, a library is missing, or it is code and that was not allowed.
    """
    if not allow_code:
        require_allowed(path, kind)
    # each of them imports a framework
    if kind is ModelFormat.ONNX:
        return OnnxSource(path)
    if kind is ModelFormat.TORCH_EXPORT:
        from conversion.torch_program import TorchProgram

        return TorchProgram(path)
    if kind in (ModelFormat.XGBOOST, ModelFormat.LIGHTGBM):
        from conversion.trees import read_lightgbm, read_xgboost

        return read_xgboost(path) if kind is ModelFormat.XGBOOST else read_lightgbm(path)
    from conversion.estimators import read_pickle, read_skops

    return read_skops(path, allow_code=allow_code) if kind is ModelFormat.SKOPS else read_pickle(path)


def describe(path: Path, kind: ModelFormat) -> ConvertedFile:
    """Return a file's name, digest and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ConvertedFile(path.name, digest, path.stat().st_size, kind.value)


_SENTENCES = {
    Step.ONNX: "Converting to ONNX",
    Step.SIMPLIFIED: "Simplifying",
    Step.FP16: "Converting to half precision",
}


def _steps(order: Order, kind: ModelFormat, name: str) -> tuple[Step, ...]:
    wanted = tuple(dict.fromkeys(order.steps))
    if kind is not ModelFormat.ONNX:
        return (Step.ONNX, *(step for step in wanted if step is not Step.ONNX))
    steps = tuple(step for step in wanted if step is not Step.ONNX)
    if not steps:
        raise ConversionFailed(f"{name} is ONNX already; choose --to simplified or --to fp16.")
    return steps


def _applied(step: Step, model: onnx.ModelProto, order: Order) -> onnx.ModelProto:
    if step is Step.ONNX:  # the source has done it
        return model
    from conversion.smaller import simplify, to_float16

    return simplify(model) if step is Step.SIMPLIFIED else to_float16(model, keep_io_types=order.keep_io_types)


def _compared(
    source: Source, candidate: onnx_file.Session, model: onnx.ModelProto, order: Order, say: Say
) -> tuple[tuple[OutputComparison, ...], tuple[int, ...]]:
    specs = source.inputs()
    names = onnx_file.input_specs(model)
    if len(names) != len(specs):
        raise ConversionFailed(f"The converted file takes {len(names)} inputs, but the first file {len(specs)}.")
    outputs: tuple[OutputComparison, ...] = ()
    rows: list[int] = []
    for inputs in _samples(order, specs):
        rows.append(rows_of(inputs))
        say(f"Comparing the answers to {rows[-1]} row{'s' * (rows[-1] != 1)}")
        # exporters may rename inputs, but keep their order
        renamed = {new.name: inputs[old.name] for old, new in zip(specs, names, strict=True)}
        found = compare(onnx_file.output_names(model), source.run(inputs), candidate.run(renamed), tolerance_of(order))
        outputs = merge(outputs, found) if outputs else found
    return outputs, tuple(rows)


def _overflows(
    full: onnx.ModelProto, half: onnx.ModelProto, order: Order, specs: Sequence[InputSpec]
) -> tuple[OutputComparison, ...]:
    from conversion.overflow import overflows

    names = onnx_file.input_specs(half)
    sample = _samples(order, specs)[-1]
    return overflows(full, half, {new.name: sample[old.name] for old, new in zip(specs, names, strict=True)})


def _samples(order: Order, specs: Sequence[InputSpec]) -> list[dict[str, Array]]:
    if order.samples:
        return [given_inputs(Path(order.samples), specs)]
    samples = [
        random_inputs(
            specs,
            batch=batch,
            seed=order.seed + index,
            integers=(order.low, order.high),
            dynamic_size=order.dynamic_size,
        )
        for index, batch in enumerate(order.batches)
    ]
    is_fixed = all(isinstance(size, int) for spec in specs for size in spec.shape)
    return samples[:1] if is_fixed else samples


def _versions() -> dict[str, str]:
    found = {}
    for name in _TOOLS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
