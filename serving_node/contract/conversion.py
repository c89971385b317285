"""What a conversion reports: from what to what, and how far the answers of the two files are apart."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from serving_node.contract.messages import Message

WARN_FACTOR = 10.0
"""Differences up to so many times the tolerance are a warning, larger ones a failure."""


class ConversionVerdict(StrEnum):
    """Whether the converted file may take the place of the first one."""

    PASS = "pass"  # noqa: S105
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Tolerance(Message):
    """An element may differ by ``absolute + relative * |reference|``."""

    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class ConvertedFile(Message):
    """A file by name, content and kind (``onnx``, ``xgboost``...)."""

    name: str
    sha256: str
    size: int
    format: str


@dataclass(frozen=True, slots=True)
class SampleInputs(Message):
    """What both files were asked: ``rows`` of each batch; ``seed`` is None for inputs that somebody gave."""

    rows: tuple[int, ...]
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class OutputComparison(Message):
    """One output over all samples.

    ``max_absolute``, ``max_relative`` (where the reference is not 0) and ``worst`` (in tolerances) are of the elements
    that are finite in both files; ``non_finite`` counts those where NaN or infinity stands in one file only, or with
    another sign. ``differing`` counts elements beyond the tolerance; of whole numbers, truth values and texts,
    every one that is not equal.
    """

    name: str
    datatype: str
    elements: int = 0
    differing: int = 0
    non_finite: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    worst: float = 0.0
    is_exact: bool = False
    problem: str = ""
    verdict: ConversionVerdict = ConversionVerdict.FAIL


@dataclass(frozen=True, slots=True)
class ConversionReport(Message):
    """The proof that goes with a converted file. ``tools`` are library versions by name."""

    source: ConvertedFile
    target: ConvertedFile
    steps: tuple[str, ...]
    tolerance: Tolerance
    samples: SampleInputs
    outputs: tuple[OutputComparison, ...]
    tools: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    verdict: ConversionVerdict = ConversionVerdict.FAIL


def output_verdict(output: OutputComparison) -> ConversionVerdict:
    """Judge one output by its figures alone. Nothing compared is a warning: it proves nothing."""
    if output.problem or output.non_finite or (output.is_exact and output.differing):
        return ConversionVerdict.FAIL
    if output.worst > WARN_FACTOR:
        return ConversionVerdict.FAIL
    if output.worst > 1 or output.elements == 0:
        return ConversionVerdict.WARN
    return ConversionVerdict.PASS


def judged(report: ConversionReport) -> ConversionReport:
    """Return the report with the verdicts that follow from its figures, whatever it said before."""
    outputs = tuple(dataclasses.replace(output, verdict=output_verdict(output)) for output in report.outputs)
    severity = list(ConversionVerdict)
    worst = max((severity.index(output.verdict) for output in outputs), default=severity.index(ConversionVerdict.FAIL))
    return dataclasses.replace(report, outputs=outputs, verdict=severity[worst])


def worst_output(report: ConversionReport) -> OutputComparison | None:
    """Return the output that decides the verdict; None when there is none."""
    severity = list(ConversionVerdict)
    return max(report.outputs, key=lambda one: (severity.index(one.verdict), one.worst), default=None)
